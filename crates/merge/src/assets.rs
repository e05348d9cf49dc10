//! The small files of a merged model: its configuration, tokenizer, model card, and the config of the merge.

use crate::Error;
use crate::config::{Body, Config};
use crate::models::{CONFIG_FILE, Model};
use crate::plan::TensorPlan;
use crate::templates;
use crate::tokenizer::{TOKENIZER_FILE, Vocabulary};
use cairn_tensor::DType;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The copy of the config in the folder of the result.
const MERGE_CONFIG_FILE: &str = "mergekit_config.yml";
const CARD_FILE: &str = "README.md";
const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";
const CHAT_TEMPLATE_FILE: &str = "chat_template.jinja";

/// Names under which models keep their number of layers.
const LAYER_KEYS: [&str; 5] = [
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
];

/// Every small file of the result.
pub(crate) fn assets(
    config: &Config,
    models: &[Model],
    tensors: &[TensorPlan],
    vocabulary: Option<&Vocabulary>,
    seed: Option<u64>,
) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let donor = donor(config, models);
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let wanted = config
        .paddle
        .as_ref()
        .and_then(|extras| extras.copy_files.as_ref());
    for (name, bytes) in models[donor].assets()? {
        let is_wanted = wanted.is_none_or(|wanted| wanted.contains(name));
        if is_wanted && !is_card(name) && !is_tokenizer(name) {
            files.insert(name.clone(), bytes.clone());
        }
    }
    let owner = vocabulary.map_or(donor, |vocabulary| vocabulary.owner);
    for (name, bytes) in models[owner].assets()? {
        if is_tokenizer(name) && wanted.is_none_or(|wanted| wanted.contains(name)) {
            files.insert(name.clone(), bytes.clone());
        }
    }
    if let Some(file) = vocabulary.and_then(|vocabulary| vocabulary.file.clone()) {
        files.insert(TOKENIZER_FILE.into(), file);
    }
    if let Some(model) = models[donor].json(CONFIG_FILE)? {
        let model = model_config(model, config, tensors, vocabulary);
        files.insert(CONFIG_FILE.into(), pretty(&model));
    }
    if let Some(template) = chat_template(config, models)? {
        set_template(&mut files, &template);
    }
    if config.paddle.is_none() {
        files.insert(MERGE_CONFIG_FILE.into(), config.text.clone().into_bytes());
        files.insert(CARD_FILE.into(), card(config, seed).into_bytes());
    } else {
        files.insert("merge_config.json".into(), config.text.clone().into_bytes());
    }
    Ok(files.into_iter().collect())
}

/// The model that side files are taken from: the base model, or the first one.
fn donor(config: &Config, models: &[Model]) -> usize {
    let first = config.models().first().map(|model| (*model).clone());
    let found = models
        .iter()
        .position(|model| Some(&model.reference) == first.as_ref());
    found.unwrap_or(0)
}

fn is_card(name: &str) -> bool {
    [CARD_FILE, MERGE_CONFIG_FILE, "merge_config.json"].contains(&name)
}

/// Whether a file belongs to a tokenizer.
fn is_tokenizer(name: &str) -> bool {
    let names = [
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "added_tokens.json",
        "special_tokens_map.json",
        CHAT_TEMPLATE_FILE,
        "chat_template.json",
    ];
    let ends = [".model", ".tiktoken"];
    name.starts_with("tokenizer")
        || names.contains(&name)
        || ends.iter().any(|end| name.ends_with(end))
}

fn pretty(value: &Value) -> Vec<u8> {
    let text = serde_json::to_string_pretty(value).expect("a value is JSON");
    (text + "\n").into_bytes()
}

/// The description of the result: the donor's, with its layers, type and tokens.
fn model_config(
    mut model: Value,
    config: &Config,
    tensors: &[TensorPlan],
    vocabulary: Option<&Vocabulary>,
) -> Value {
    let layers = layers(config);
    let dtype = config
        .out_dtype
        .or(config.dtype)
        .or_else(|| common_dtype(tensors));
    let rows = vocabulary.map(Vocabulary::rows);
    let Some(object) = model.as_object_mut() else {
        return model;
    };
    if let Some(dtype) = dtype.and_then(torch_name) {
        let key = if object.contains_key("dtype") {
            "dtype"
        } else {
            "torch_dtype"
        };
        object.insert(key.into(), json!(dtype));
    }
    // Two tensors are stored where one was shared; who loads them by the config would drop the head.
    let has_head = |tensor: &TensorPlan| tensor.name.ends_with("lm_head.weight");
    if tensors.iter().any(has_head) {
        untie(object);
    }
    // The text part of a model that also sees has a description of its own.
    let keeps_own = object.get("text_config").is_some_and(Value::is_object);
    let inner = match keeps_own {
        true => object.get_mut("text_config").and_then(Value::as_object_mut),
        false => Some(object),
    };
    if let Some(object) = inner {
        if let (Some(layers), Some(key)) = (
            layers,
            LAYER_KEYS.iter().find(|key| object.contains_key(**key)),
        ) {
            object.insert((*key).into(), json!(layers));
            let types = object.get_mut("layer_types").and_then(Value::as_array_mut);
            if let Some(types) = types.filter(|types| !types.is_empty()) {
                let pattern = types.clone();
                *types = pattern.iter().cycle().take(layers).cloned().collect();
            }
        }
        if let Some(rows) = rows {
            object.insert("vocab_size".into(), json!(rows));
        }
    }
    model
}

/// Takes back that the embedding and the head are one tensor, here and in the description of the text part.
fn untie(object: &mut Map<String, Value>) {
    if let Some(tied) = object.get_mut("tie_word_embeddings") {
        *tied = json!(false);
    }
    if let Some(inner) = object.get_mut("text_config").and_then(Value::as_object_mut) {
        untie(inner);
    }
}

/// How many layers the result has, if it is made of slices.
fn layers(config: &Config) -> Option<usize> {
    let [module] = config.modules.as_slice() else {
        return None;
    };
    let Body::Slices(slices) = &module.body else {
        return None;
    };
    let of = |source: &crate::config::InputSlice| source.layers.1 - source.layers.0;
    Some(
        slices
            .iter()
            .filter_map(|slice| slice.sources.first())
            .map(of)
            .sum(),
    )
}

fn common_dtype(tensors: &[TensorPlan]) -> Option<DType> {
    let mut dtypes = tensors.iter().map(|tensor| tensor.tensor.dtype);
    let first = dtypes.next()?;
    dtypes.all(|dtype| dtype == first).then_some(first)
}

fn torch_name(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::Bf16 => Some("bfloat16"),
        DType::F16 => Some("float16"),
        DType::F32 => Some("float32"),
        DType::F64 => Some("float64"),
        _ => None,
    }
}

/// The chat template that the config asks for: its text, or with `auto` the one most models have.
fn chat_template(config: &Config, models: &[Model]) -> Result<Option<String>, Error> {
    let Some(wanted) = &config.chat_template else {
        return Ok(None);
    };
    if wanted != "auto" {
        let preset = templates::find(wanted).map(str::to_string);
        return Ok(Some(preset.unwrap_or_else(|| wanted.clone())));
    }
    let mut votes: Vec<(String, usize)> = Vec::new();
    for model in models {
        let Some(template) = template_of(model)? else {
            continue;
        };
        match votes.iter_mut().find(|(known, _)| *known == template) {
            Some((_, count)) => *count += 1,
            None => votes.push((template, 1)),
        }
    }
    let most = votes.iter().map(|(_, count)| *count).max();
    Ok(votes
        .into_iter()
        .find(|(_, count)| Some(*count) == most)
        .map(|(template, _)| template))
}

fn template_of(model: &Model) -> Result<Option<String>, Error> {
    if let Some(bytes) = model.asset(CHAT_TEMPLATE_FILE)? {
        return Ok(Some(String::from_utf8_lossy(bytes).trim().to_string()));
    }
    let config = model.json(TOKENIZER_CONFIG_FILE)?;
    let template = config
        .as_ref()
        .and_then(|config| config.get("chat_template"));
    Ok(template
        .and_then(Value::as_str)
        .map(|text| text.trim().to_string()))
}

/// Puts a chat template where the tokenizer keeps one.
fn set_template(files: &mut BTreeMap<String, Vec<u8>>, template: &str) {
    let config = files.get(TOKENIZER_CONFIG_FILE);
    let config = config.and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    if let Some(mut config) = config.filter(|config| config.get("chat_template").is_some()) {
        config["chat_template"] = json!(template);
        files.insert(TOKENIZER_CONFIG_FILE.into(), pretty(&config));
    }
    files.insert(CHAT_TEMPLATE_FILE.into(), template.as_bytes().to_vec());
}

/// The model card.
fn card(config: &Config, seed: Option<u64>) -> String {
    let models = config.models();
    let list = |prefix: &str| -> String {
        models
            .iter()
            .map(|model| format!("{prefix}{model}\n"))
            .collect()
    };
    let seed = seed.map_or_else(String::new, |seed| {
        format!("\nIts random numbers are those of seed {seed}.\n")
    });
    format!(
        "---\nbase_model:\n{}library_name: transformers\ntags:\n- merge\n- cairn\n---\n\n# A merged model\n\n\
         Merged by [Cairn](https://github.com/cairn-rs/cairn) with the method `{}`: {}.\n{seed}\n\
         ## Models\n\n{}\n## Config\n\n```yaml\n{}\n```\n",
        list("- "),
        config.method.name,
        config.method.summary,
        list("* "),
        config.text.trim_end(),
    )
}
