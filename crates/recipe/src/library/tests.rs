//! Every shipped recipe can be read, and undoes its opposite on the tensors of a small model.

use super::*;
use crate::{Compiled, Step, Tensor, Tensors};
use cairn_tensor::DType;

fn settings(values: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::default();
    for (name, value) in values {
        settings.set(name, value);
    }
    settings
}

/// What small models of all families have.
fn small() -> Settings {
    settings(&[
        ("num_attention_heads", "4"),
        ("num_key_value_heads", "2"),
        ("num_hidden_layers", "2"),
        ("first_k_dense_replace", "1"),
        ("moe_layer_start_index", "1"),
        ("q_lora_rank", "8"),
        ("n_head", "4"),
        ("vocab_size", "10"),
        ("num_experts", "3"),
        ("num_local_experts", "3"),
        ("n_routed_experts", "3"),
        ("moe_num_experts", "3"),
    ])
}

#[test]
fn every_recipe_has_a_name_a_sentence_and_a_program() {
    let all = list();
    assert!(all.len() > 20 && all.is_sorted_by_key(|recipe| recipe.name.clone()));
    for recipe in all {
        assert!(
            recipe.name.contains("-to-") && recipe.about.ends_with('.'),
            "{recipe:?}"
        );
        let program = recipe.program(&small()).unwrap();
        assert!(!program.is_empty(), "{}", recipe.name);
    }
}

#[test]
fn a_name_that_is_nearly_right_is_suggested() {
    let error = find("lama/hf-to-megatron").unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no recipe `lama/hf-to-megatron`"
    );
    assert!(error.hint().unwrap().contains("`llama/hf-to-megatron`"));
}

#[test]
fn a_missing_setting_is_named() {
    let error = find("llama/hf-to-megatron").unwrap();
    let error = error.program(&Settings::default()).unwrap_err();
    assert_eq!(
        error,
        LibraryError::MissingSetting {
            name: "num_attention_heads".into()
        }
    );
    assert!(error.hint().unwrap().contains("--set num_attention_heads="));
}

#[test]
fn a_recipe_says_what_it_asks_for() {
    let asked = find("deepseek_v3/hf-to-megatron").unwrap().settings();
    assert!(
        asked.contains(&"first_k_dense_replace".to_string()),
        "{asked:?}"
    );
    assert!(!asked.contains(&"layer".to_string()), "{asked:?}");
}

fn compile(name: &str, settings: &Settings, sources: &Tensors) -> Compiled {
    let program = find(name).unwrap().program(settings).unwrap();
    program
        .compile(sources, None)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn tensors(compiled: &Compiled) -> Tensors {
    let targets = compiled.targets.iter();
    let tensor = |target: &crate::Target| Tensor::new(target.dtype, target.shape.clone());
    targets
        .map(|(name, target)| (name.clone(), tensor(target)))
        .collect()
}

fn llama() -> Tensors {
    let mut tensors = Tensors::new();
    let mut add = |name: &str, shape: &[usize]| {
        let tensor = Tensor::new(DType::Bf16, shape);
        tensors.insert(format!("model.{name}"), tensor);
    };
    add("embed_tokens.weight", &[10, 16]);
    add("norm.weight", &[16]);
    for layer in 0..2 {
        let mut add = |name: &str, shape: &[usize]| add(&format!("layers.{layer}.{name}"), shape);
        for norm in ["input_layernorm.weight", "post_attention_layernorm.weight"] {
            add(norm, &[16]);
        }
        for (name, rows) in [("q", 16), ("k", 8), ("v", 8), ("o", 16)] {
            add(&format!("self_attn.{name}_proj.weight"), &[rows, 16]);
        }
        for name in ["gate", "up"] {
            add(&format!("mlp.{name}_proj.weight"), &[20, 16]);
        }
        add("mlp.down_proj.weight", &[16, 20]);
    }
    tensors.insert("lm_head.weight".into(), Tensor::new(DType::Bf16, [10, 16]));
    tensors
}

#[test]
fn llama_goes_to_megatron_and_back() {
    let sources = llama();
    let mut padded = small();
    padded.set("vocab_multiple", "8");
    let there = compile("llama/hf-to-megatron", &padded, &sources);
    let shape = |name: &str| there.targets[name].shape.clone();
    assert_eq!(shape("embedding.word_embeddings.weight"), [16, 16]);
    assert_eq!(shape("output_layer.weight"), [16, 16]);
    assert_eq!(
        shape("decoder.layers.1.self_attention.linear_qkv.weight"),
        [32, 16]
    );
    assert_eq!(shape("decoder.layers.0.mlp.linear_fc1.weight"), [40, 16]);
    let back = compile("llama/megatron-to-hf", &padded, &tensors(&there));
    assert_eq!(tensors(&back), sources);
}

#[test]
fn layers_that_are_alike_may_lie_in_one_tensor() {
    let sources = llama();
    let mut stacked = small();
    stacked.set("stacked_layers", "true");
    let there = compile("llama/hf-to-megatron", &stacked, &sources);
    let shape = |name: &str| there.targets[name].shape.clone();
    assert_eq!(
        shape("decoder.layers.self_attention.linear_qkv.weight"),
        [2, 32, 16]
    );
    assert_eq!(
        shape("decoder.layers.mlp.linear_fc1.layer_norm_weight"),
        [2, 16]
    );
    assert!(!there.targets.keys().any(|name| name.contains(".1.")));
    let back = compile("llama/megatron-to-hf", &stacked, &tensors(&there));
    assert_eq!(tensors(&back), sources);
}

#[test]
fn experts_lie_in_one_tensor_as_in_checkpoints_of_megatron() {
    let mut settings = small();
    let mut sources = llama();
    sources.retain(|name, _| !name.contains(".mlp."));
    for layer in 0..2 {
        let prefix = format!("model.layers.{layer}.mlp");
        let mut add = |name: &str, shape: &[usize]| {
            let tensor = Tensor::new(DType::Bf16, shape.to_vec());
            sources.insert(format!("{prefix}.{name}.weight"), tensor);
        };
        add("gate", &[3, 16]);
        for expert in 0..3 {
            add(&format!("experts.{expert}.gate_proj"), &[20, 16]);
            add(&format!("experts.{expert}.up_proj"), &[20, 16]);
            add(&format!("experts.{expert}.down_proj"), &[16, 20]);
        }
    }
    let there = compile("qwen3_moe/hf-to-megatron", &settings, &sources);
    let shape = |name: &str| {
        there.targets[&format!("decoder.layers.1.mlp.{name}")]
            .shape
            .clone()
    };
    assert_eq!(shape("experts.experts.linear_fc1.weight"), [3, 40, 16]);
    assert_eq!(shape("experts.experts.linear_fc2.weight"), [3, 16, 20]);
    assert!(!there.targets.keys().any(|name| name.ends_with("weight0")));
    let back = compile("qwen3_moe/megatron-to-hf", &settings, &tensors(&there));
    assert_eq!(tensors(&back), sources);
    settings.set("experts_apart", "true");
    let apart = compile("qwen3_moe/hf-to-megatron", &settings, &sources);
    let one = &apart.targets["decoder.layers.1.mlp.experts.linear_fc1.weight2"];
    assert_eq!(one.shape, [40, 16]);
}

#[test]
fn each_key_head_lies_behind_its_queries() {
    let there = compile("llama/hf-to-megatron", &small(), &llama());
    let fused = &there.targets["decoder.layers.0.self_attention.linear_qkv.weight"];
    let pieces = fused.pieces.as_ref().unwrap().iter();
    let from = pieces.map(|piece| {
        let source = piece.source.as_ref().unwrap();
        let name = source.name.split('.').nth(4).unwrap().to_owned();
        (
            piece.region.offset[0],
            name,
            source.region.offset[0],
            source.region.extent[0],
        )
    });
    let mut from: Vec<_> = from.collect();
    from.sort_unstable();
    let expected = [
        (0, "q_proj", 0, 8),
        (8, "k_proj", 0, 4),
        (12, "v_proj", 0, 4),
        (16, "q_proj", 8, 8),
        (24, "k_proj", 4, 4),
        (28, "v_proj", 4, 4),
    ];
    let expected = expected.map(|(at, name, offset, extent)| (at, name.to_owned(), offset, extent));
    assert_eq!(from, expected);
}

#[test]
fn a_model_with_a_tied_head_has_none() {
    let mut tied = small();
    tied.set("tie_word_embeddings", "true");
    tied.set("vocab_multiple", "8");
    let mut sources = llama();
    sources.remove("lm_head.weight");
    let there = compile("llama/hf-to-megatron", &tied, &sources);
    assert!(!there.targets.contains_key("output_layer.weight"));
    let back = compile("llama/megatron-to-hf", &tied, &tensors(&there));
    assert_eq!(tensors(&back), sources);
}

#[test]
fn paddle_has_weights_the_other_way_round() {
    let sources = llama();
    let there = compile("llama/hf-to-paddle", &small(), &sources);
    let down = &there.targets["model.layers.0.mlp.down_proj.weight"];
    assert_eq!(down.shape, [20, 16]);
    let steps = &down.pieces.as_ref().unwrap()[0].steps;
    assert_eq!(steps, &[Step::Permute(vec![1, 0])]);
    assert_eq!(there.targets["lm_head.weight"].shape, [10, 16]);
    let back = compile("llama/paddle-to-hf", &small(), &tensors(&there));
    assert_eq!(tensors(&back), sources);
}

#[test]
fn own_templates_have_conditions_repetitions_and_defaults() {
    let text = "\
# A comment.
each i in 0..{n|2}: a.{i} -> b.{i}
if big: c -> d, dtype={dtype|'bfloat16'}
unless big: c -> e
";
    let sources: Tensors = ["a.0", "a.1", "c"]
        .map(|name| (name.to_owned(), Tensor::new(DType::F32, [2])))
        .into();
    let names = |settings: &Settings| -> Vec<String> {
        let program = program(text, false, settings).unwrap();
        let compiled = program.compile(&sources, None).unwrap();
        compiled.targets.into_keys().collect()
    };
    assert_eq!(names(&Settings::default()), ["b.0", "b.1", "e"]);
    assert_eq!(
        names(&settings(&[("big", "true"), ("n", "1")])),
        ["a.1", "b.0", "d"]
    );
    assert_eq!(names(&settings(&[("big", "false")])), ["b.0", "b.1", "e"]);
}

#[test]
fn json_is_a_recipe_too_in_both_directions() {
    let sources: Tensors = [("a".to_owned(), Tensor::new(DType::F32, [2]))].into();
    for (text, reverse) in [
        (r#"["a -> b"]"#, false),
        (r#"{"statements": ["a -> b"]}"#, false),
        (
            r#"{"aoa_statements": ["b -> a"], "aoa_config_reverse": true}"#,
            false,
        ),
        (r#" ["b -> a"]"#, true),
        (r#"{"statements": ["a -> b"], "reverse": true}"#, true),
    ] {
        let program = program(text, reverse, &Settings::default()).unwrap();
        let compiled = program.compile(&sources, None).unwrap();
        assert!(compiled.targets.contains_key("b"), "{text}");
    }
    let error = program("[1]", false, &Settings::default()).unwrap_err();
    assert!(error.to_string().contains("not a program"), "{error}");
}

#[test]
fn templates_that_cannot_be_read_are_refused() {
    for (text, reason) in [
        ("if a -> b", "there is no `:`"),
        ("if a b: c -> d", "expected `if NAME:`"),
        ("include parts/none", "no such part"),
        ("[[i in 0..2: a.{i} -> b, axis=0", "is not closed"),
        ("[[i of 0..2: a.{i}]] -> b, axis=0", "expected `[[NAME in"),
        ("a -> {b", "is not closed"),
        ("each i in 0..x: a -> b", "two whole numbers"),
        ("each i in 0..99999999: a -> b", "two whole numbers"),
        ("a ->", "unexpected"),
    ] {
        let error = program(text, false, &Settings::default()).unwrap_err();
        assert!(error.to_string().contains(reason), "{text}: {error}");
    }
}

#[test]
fn settings_are_those_of_the_language_model_and_of_the_whole() {
    let config = serde_json::json!({
        "text_config": {"num_attention_heads": 8, "tie_word_embeddings": false},
        "tie_word_embeddings": true, "rope": {"theta": 1}, "nothing": null,
    });
    let settings = Settings::from_config(&config);
    assert_eq!(settings.get("num_attention_heads"), Some("8"));
    assert!(settings.is_true("tie_word_embeddings"));
    assert_eq!(
        (settings.get("rope"), settings.get("nothing")),
        (None, None)
    );
}
