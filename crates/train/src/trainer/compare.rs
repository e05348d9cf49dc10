//! Whether a launch goes on with the run that a checkpoint is of.
//!
//! A checkpoint says how its run was chosen to go. What decides what the run means must stay: with another seed the place in the data is that of
//! other sequences, with another `rms_norm_eps` the weights are those of another model. What only decides how far or where it runs may change, and
//! is told.

use crate::fingerprint::{Change, changes};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What must stay as it was, as keys of a config; tables stand for all that is in them.
const MEANING: [&str; 9] = [
    "seed",
    "batch",
    "data",
    "model.tokenizer",
    "optimizer.kind",
    "optimizer.betas",
    "optimizer.epsilon",
    "optimizer.momentum",
    "optimizer.nesterov",
];

/// Fields of a `config.json` that must stay because they decide shapes: there is no way to go on with others.
const SHAPES: [&str; 12] = [
    "architectures",
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
];

/// Fields of a `config.json` that must stay because they decide what weights of the same shapes compute.
const ARITHMETIC: [&str; 4] = ["hidden_act", "rms_norm_eps", "rope_theta", "rope_scaling"];

/// The small files that say what a model is like.
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";

/// What a run is, as a launch chose it or as a checkpoint has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Described<'a> {
    /// The settings, as they are saved.
    pub(super) settings: Option<&'a Value>,
    /// What the data is made of.
    pub(super) data: Option<&'a Value>,
    /// The small files that travel with every step.
    pub(super) assets: &'a BTreeMap<String, Vec<u8>>,
}

/// How a launch differs from the run that a step is of, each difference in a few words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Comparison {
    /// What may not differ.
    pub(super) refused: Vec<String>,
    /// The keys of these that a person may let differ.
    pub(super) allowable: Vec<String>,
    /// What may.
    pub(super) told: Vec<String>,
}

impl Comparison {
    /// How `now` differs from `before`. Keys in `may_change`, and tables, may differ.
    pub(super) fn new(before: Described<'_>, now: Described<'_>, may_change: &[String]) -> Self {
        let mut found = settings_changes(before.settings, now.settings);
        found.extend(model_changes(before.assets, now.assets));
        found.extend(tokenizer_change(before.assets, now.assets));
        found.extend(data_changes(before.data, now.data));
        let mut comparison = Self::default();
        for change in found {
            let key = change.path.as_str();
            // The length of sequences is part of what places in the data mean.
            let is_data = key == "batch.length" && may_change.iter().any(|name| name == "data");
            let is_allowed = is_data || is_in(key, may_change);
            if is_allowed || !has_meaning(key) {
                comparison.told.push(change.to_string());
                continue;
            }
            comparison.refused.push(change.to_string());
            if !decides_shapes(key) {
                comparison.allowable.push(change.path);
            }
        }
        comparison
    }
}

/// Whether a key is one of `names`, or in a table of that name.
fn is_in(key: &str, names: &[impl AsRef<str>]) -> bool {
    names.iter().any(|name| {
        let rest = key.strip_prefix(name.as_ref());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

fn has_meaning(key: &str) -> bool {
    let field = key.strip_prefix("model.config.");
    is_in(key, &MEANING) || field.is_some_and(|it| is_in(it, &SHAPES) || is_in(it, &ARITHMETIC))
}

fn decides_shapes(key: &str) -> bool {
    let field = key.strip_prefix("model.config.");
    key == "optimizer.kind" || field.is_some_and(|field| is_in(field, &SHAPES))
}

/// The settings by the keys of a config. Those that an older Cairn did not know are left out.
fn by_keys(settings: &Value) -> Value {
    let pick = |names: &[(&str, &str)]| {
        let found = names
            .iter()
            .filter_map(|(key, from)| Some(((*key).to_string(), settings.get(*from)?.clone())));
        found.collect::<Map<_, _>>()
    };
    let table = |from: &str| match settings.get(from) {
        Some(Value::Object(fields)) => fields.clone(),
        _ => Map::new(),
    };
    let mut parallel = table("parallel");
    parallel.extend(pick(&[("dtype", "precision"), ("recompute", "recompute")]));
    let mut optimizer = table("optimizer");
    optimizer.extend(pick(&[("clip", "clip")]));
    let mut keys = pick(&[
        ("seed", "seed"),
        ("steps", "steps"),
        ("learning_rate", "learning_rate"),
    ]);
    keys.insert(
        "batch".into(),
        json!(pick(&[("sequences", "batch"), ("tokens", "tokens")])),
    );
    keys.insert("optimizer".into(), json!(optimizer));
    keys.insert("parallel".into(), json!(parallel));
    Value::Object(keys)
}

fn settings_changes(before: Option<&Value>, now: Option<&Value>) -> Vec<Change> {
    let Some((before, now)) = before.zip(now) else {
        return Vec::new();
    };
    let mut found = changes(&by_keys(before), &by_keys(now));
    let other_kind = found.iter().any(|change| change.path == "optimizer.kind");
    // Optimizers of two kinds have nothing else to compare.
    found.retain(|change| {
        let is_of_both = change.before.is_some() && change.now.is_some();
        let is_detail = change.path.starts_with("optimizer.") && change.path != "optimizer.kind";
        is_of_both && !(other_kind && is_detail)
    });
    found
}

fn model_changes(
    before: &BTreeMap<String, Vec<u8>>,
    now: &BTreeMap<String, Vec<u8>>,
) -> Vec<Change> {
    let config = |assets: &BTreeMap<String, Vec<u8>>| {
        serde_json::from_slice::<Value>(assets.get(CONFIG)?).ok()
    };
    let found = config(before).zip(config(now));
    let found = found.map_or(Vec::new(), |(before, now)| changes(&before, &now));
    found
        .into_iter()
        .map(|change| change.under("model.config"))
        .collect()
}

fn tokenizer_change(
    before: &BTreeMap<String, Vec<u8>>,
    now: &BTreeMap<String, Vec<u8>>,
) -> Option<Change> {
    let (before, now) = (before.get(TOKENIZER), now.get(TOKENIZER));
    let size = |bytes: &Vec<u8>| json!(format!("a file of {} bytes", bytes.len()));
    let now_is = |bytes: &Vec<u8>| json!(format!("another file, of {} bytes", bytes.len()));
    (before != now && before.is_some()).then(|| Change {
        path: match now {
            Some(_) => "model.tokenizer".into(),
            // Without one, later steps hold none: that changes no number.
            None => "model.tokenizer_file".into(),
        },
        before: before.map(size),
        now: now.map(now_is),
    })
}

fn data_changes(before: Option<&Value>, now: Option<&Value>) -> Vec<Change> {
    let found = before.zip(now);
    let found = found.map_or(Vec::new(), |(before, now)| changes(before, now));
    let keyed = found.into_iter().map(|change| match change.path.as_str() {
        "length" => change.under("batch"),
        _ => change.under("data"),
    });
    keyed.collect()
}

#[cfg(test)]
mod tests {
    //! What is refused, what is told.

    use super::*;
    use crate::Settings;
    use crate::settings::Optimizer;

    fn compare(before: &Settings, now: &Settings, may_change: &[&str]) -> Comparison {
        let [before, now] = [before, now].map(|it| serde_json::to_value(it).unwrap());
        let assets = BTreeMap::new();
        let described = |settings| Described {
            settings: Some(settings),
            data: None,
            assets: &assets,
        };
        let may_change: Vec<String> = may_change.iter().map(ToString::to_string).collect();
        Comparison::new(described(&before), described(&now), &may_change)
    }

    fn models(before: &Value, now: &Value) -> Comparison {
        let assets =
            |value: &Value| BTreeMap::from([(CONFIG.to_string(), value.to_string().into())]);
        let (before, now) = (assets(before), assets(now));
        let described = |assets| Described {
            settings: None,
            data: None,
            assets,
        };
        Comparison::new(described(&before), described(&now), &[])
    }

    #[test]
    fn another_seed_or_batch_is_refused_and_more_steps_are_told() {
        let before = Settings::default();
        let mut now = Settings {
            seed: 99,
            batch: 4,
            steps: 2000,
            ..before.clone()
        };
        now.parallel.mesh = "dp=2".parse().unwrap();
        let found = compare(&before, &now, &[]);
        assert_eq!(
            found.refused,
            ["`batch.sequences` was 8, is 4", "`seed` was 0, is 99"]
        );
        assert_eq!(found.allowable, ["batch.sequences", "seed"]);
        let told = [
            "`parallel.mesh` was \"single\", is \"dp=2\"",
            "`steps` was 1000, is 2000",
        ];
        assert_eq!(found.told, told);
        let found = compare(&before, &now, &["seed", "batch"]);
        assert!(found.refused.is_empty(), "{found:?}");
        assert_eq!(found.told.len(), 4);
        assert_eq!(compare(&before, &before, &[]), Comparison::default());
    }

    #[test]
    fn another_optimizer_is_one_difference() {
        let before = Settings::default();
        let now = Settings {
            optimizer: Optimizer::Sgd {
                momentum: 0.9,
                nesterov: false,
                weight_decay: 0.0,
            },
            ..before.clone()
        };
        let found = compare(&before, &now, &[]);
        assert_eq!(
            found.refused,
            ["`optimizer.kind` was \"adamw\", is \"sgd\""]
        );
        assert!(
            found.allowable.is_empty() && found.told.is_empty(),
            "{found:?}"
        );
    }

    #[test]
    fn a_model_that_computes_something_else_is_refused_even_if_its_shapes_are_the_same() {
        let before =
            json!({"hidden_size": 64, "rms_norm_eps": 1e-6, "rope_scaling": null, "note": 1});
        let now = json!({"hidden_size": 32, "rms_norm_eps": 0.01, "rope_scaling": {"factor": 2.0}, "note": 2});
        let found = models(&before, &now);
        let refused = [
            "`model.config.hidden_size` was 64, is 32",
            "`model.config.rms_norm_eps` was 1e-6, is 0.01",
        ];
        assert!(
            refused
                .iter()
                .all(|text| found.refused.contains(&text.to_string())),
            "{found:?}"
        );
        assert!(
            found
                .refused
                .iter()
                .any(|text| text.contains("rope_scaling")),
            "{found:?}"
        );
        assert_eq!(found.told, ["`model.config.note` was 1, is 2"]);
        assert!(
            !found
                .allowable
                .contains(&"model.config.hidden_size".to_string())
        );
    }

    #[test]
    fn what_an_older_cairn_did_not_save_is_not_compared() {
        let now = serde_json::to_value(Settings::default()).unwrap();
        let before = json!({"seed": 0});
        assert!(settings_changes(Some(&before), Some(&now)).is_empty());
        assert!(settings_changes(None, Some(&now)).is_empty());
    }
}
