//! A `config.json` that says what the exported tensors are: whether weights are in FP8, and how they are scaled.
//!
//! Readers of Hugging Face folders go by the config. FP8 weights without a `quantization_config` are loaded as if they had no
//! scales, and bf16 weights with one are taken for FP8; both are wrong without a word.

use crate::source::{Source, StoredTensor};
use cairn_tensor::DType;
use serde_json::{Map, Value, json};

const CONFIG_FILE: &str = "config.json";
const KEY: &str = "quantization_config";

/// How the name of a weight's scales goes on behind its own.
const SCALES: &str = "_scale_inv";

/// The sides of blocks that are tried, the usual one first.
const BLOCKS: [usize; 6] = [128, 64, 256, 32, 512, 16];

/// The side files of an export of the tensors `names`, with a config that fits them.
pub(super) fn described(
    mut assets: Vec<(String, Vec<u8>)>,
    source: &dyn Source,
    names: &[&str],
) -> Vec<(String, Vec<u8>)> {
    let config = assets.iter_mut().find(|(name, _)| name == CONFIG_FILE);
    if let Some((_, bytes)) = config
        && let Ok(Value::Object(mut config)) = serde_json::from_slice(bytes)
        && update(&mut config, source, names)
    {
        let text = serde_json::to_string_pretty(&config).expect("a config is JSON") + "\n";
        *bytes = text.into_bytes();
    }
    assets
}

/// Brings a config up to date; whether anything changed.
fn update(config: &mut Map<String, Value>, source: &dyn Source, names: &[&str]) -> bool {
    let is_fp8 = |tensor: &StoredTensor| tensor.dtype == DType::F8E4M3;
    let mut pairs = Vec::new();
    let mut has_fp8 = false;
    for name in names {
        let Some(weight) = source.find(name).filter(is_fp8) else {
            continue;
        };
        has_fp8 = true;
        let scales = format!("{name}{SCALES}");
        if names.contains(&scales.as_str())
            && let Some(scales) = source.find(&scales)
        {
            pairs.push((weight.shape, scales.shape));
        }
    }
    let method = |config: &Map<String, Value>| {
        let method = config.get(KEY)?.get("quant_method")?;
        method.as_str().map(str::to_string)
    };
    if !has_fp8 {
        return method(config).as_deref() == Some("fp8") && config.shift_remove(KEY).is_some();
    }
    if config.contains_key(KEY) {
        return false;
    }
    let Some(block) = BLOCKS.into_iter().find(|block| fits(*block, &pairs)) else {
        tracing::warn!(
            "the scales of FP8 weights fit no block size: `{CONFIG_FILE}` does not speak of them"
        );
        return false;
    };
    let plain = plain_modules(source, names);
    config.insert(
        KEY.into(),
        json!({
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": [block, block],
            "modules_to_not_convert": plain,
        }),
    );
    true
}

/// Whether every scale is that of a block of so many rows and columns.
fn fits(block: usize, pairs: &[(Vec<usize>, Vec<usize>)]) -> bool {
    let count = |len: &usize| len.div_ceil(block);
    let mut each = pairs.iter();
    !pairs.is_empty()
        && each.all(|(weight, scales)| weight.iter().map(count).eq(scales.iter().copied()))
}

/// The modules whose weights are matrices and not in FP8.
fn plain_modules(source: &dyn Source, names: &[&str]) -> Vec<String> {
    let modules = names.iter().filter_map(|name| {
        let module = name.strip_suffix(".weight")?;
        let weight = source.find(name)?;
        (weight.shape.len() == 2 && weight.dtype != DType::F8E4M3).then(|| module.to_string())
    });
    modules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ModelSource;
    use cairn_formats::{Model, Tensor};
    use cairn_store::Memory;
    use std::sync::Arc;

    fn source(tensors: &[(&str, DType, &[usize])]) -> ModelSource {
        let mut model = Model::default();
        for (name, dtype, shape) in tensors {
            let tensor = Tensor::whole(*dtype, shape.to_vec(), 0, 0);
            model.tensors.insert((*name).to_string(), tensor);
        }
        ModelSource::new(Arc::new(Memory::new()), model)
    }

    fn config_of(tensors: &[(&str, DType, &[usize])], config: &str) -> String {
        let source = source(tensors);
        let assets = vec![(CONFIG_FILE.to_string(), config.as_bytes().to_vec())];
        let assets = described(assets, &source, &source.names());
        String::from_utf8(assets[0].1.clone()).unwrap()
    }

    const SCALED: [(&str, DType, &[usize]); 3] = [
        ("a.q.weight", DType::F8E4M3, &[300, 128]),
        ("a.q.weight_scale_inv", DType::F32, &[3, 1]),
        ("lm_head.weight", DType::Bf16, &[10, 128]),
    ];

    #[test]
    fn weights_in_fp8_are_declared_with_their_blocks() {
        let config: Value =
            serde_json::from_str(&config_of(&SCALED, r#"{"z": 1, "a": 2}"#)).unwrap();
        assert_eq!(config[KEY]["quant_method"], "fp8");
        assert_eq!(config[KEY]["weight_block_size"], json!([128, 128]));
        assert_eq!(config[KEY]["modules_to_not_convert"], json!(["lm_head"]));
        assert_eq!(config.as_object().unwrap().keys().next().unwrap(), "z");
        let own = r#"{"quantization_config":{"quant_method":"fp8"}}"#;
        assert_eq!(config_of(&SCALED, own), own);
    }

    #[test]
    fn weights_that_are_no_longer_in_fp8_are_no_longer_declared() {
        let plain = [("a.q.weight", DType::Bf16, &[300, 128][..])];
        let said = r#"{"a": 1, "quantization_config": {"quant_method": "fp8"}, "b": 2}"#;
        assert_eq!(config_of(&plain, said), "{\n  \"a\": 1,\n  \"b\": 2\n}\n");
        // What others mean by it is theirs.
        let other = r#"{"quantization_config":{"quant_method":"gptq"}}"#;
        assert_eq!(config_of(&plain, other), other);
        assert_eq!(config_of(&plain, "{}"), "{}");
    }
}
