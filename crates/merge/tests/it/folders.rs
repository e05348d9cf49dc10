//! What a merged folder contains.

use crate::fixture::{Place, Tensors, files, fresh, json_file, loaded, pdparams, tensors};
use cairn_merge::Options;
use cairn_store::{Memory, Store};
use serde_json::json;
use std::sync::Arc;

const LINEAR: &str = "
merge_method: linear
models:
  - {model: $/a, parameters: {weight: 1}}
  - {model: $/b, parameters: {weight: 3}}
";

#[test]
fn a_mean_is_written_with_the_files_that_belong_to_a_model() {
    let place = Place::with_models(2);
    let store = place.merged(LINEAR);
    let (a, b, merged) = (tensors(1, 2), tensors(2, 2), loaded(store.as_ref()));
    assert_eq!(merged.len(), a.len());
    for (name, (shape, values)) in &merged {
        assert_eq!(shape, &a[name].0);
        for (at, value) in values.iter().enumerate() {
            let expected = (a[name].1[at] + 3.0 * b[name].1[at]) / 4.0;
            assert!((value - expected).abs() < 1e-6, "{name}");
        }
    }
    let names: Vec<String> = files(store.as_ref()).into_keys().collect();
    let expected = [
        "README.md",
        "config.json",
        "mergekit_config.yml",
        "model.safetensors",
        "tokenizer.json",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        store.get("tokenizer.json").unwrap(),
        b"{\"of\": \"the model\"}"
    );
    assert_eq!(
        json_file(store.as_ref(), "config.json")["torch_dtype"],
        json!("float32")
    );
}

#[test]
fn many_files_have_an_index_that_names_every_tensor() {
    let place = Place::with_models(2);
    let options = Options {
        shard_bytes: 100,
        ..Options::default()
    };
    let merge = place.merge_with(LINEAR, options).unwrap();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let report = merge.write(&store, &fresh()).unwrap();
    assert!(report.files.len() > 2);
    let index = json_file(store.as_ref(), "model.safetensors.index.json");
    let map = index["weight_map"].as_object().unwrap();
    assert_eq!(map.len(), tensors(0, 2).len());
    assert_eq!(
        loaded(store.as_ref()),
        loaded(place.merged(LINEAR).as_ref())
    );
    let bytes: usize = tensors(0, 2)
        .values()
        .map(|(_, values)| 4 * values.len())
        .sum();
    assert_eq!(index["metadata"]["total_size"], json!(bytes));
}

#[test]
fn layers_are_stacked_and_counted() {
    let place = Place::with_models(3);
    let store = place.merged(
        "
merge_method: passthrough
slices:
  - sources: [{model: $/a, layer_range: [0, 2]}]
  - sources: [{model: $/b, layer_range: [1, 3]}]
",
    );
    let (a, b, merged) = (tensors(1, 3), tensors(2, 3), loaded(store.as_ref()));
    let layer = |layer: usize| format!("model.layers.{layer}.mlp.up_proj.weight");
    for (target, source) in [
        (0, &a[&layer(0)]),
        (1, &a[&layer(1)]),
        (2, &b[&layer(1)]),
        (3, &b[&layer(2)]),
    ] {
        assert_eq!(&merged[&layer(target)], source);
    }
    // What comes before the layers is the first slice's, what comes after them the last one's.
    assert_eq!(
        merged["model.embed_tokens.weight"],
        a["model.embed_tokens.weight"]
    );
    assert_eq!(merged["model.norm.weight"], b["model.norm.weight"]);
    assert_eq!(
        json_file(store.as_ref(), "config.json")["num_hidden_layers"],
        json!(4)
    );
}

#[test]
fn parameters_of_a_slice_go_before_those_of_the_whole() {
    let place = Place::with_models(2);
    let store = place.merged(
        "
merge_method: linear
parameters: {weight: 1}
slices:
  - sources:
      - {model: $/a, layer_range: [0, 1]}
      - {model: $/b, layer_range: [0, 1], parameters: {weight: 0}}
  - parameters: {weight: [{filter: mlp, value: 2}]}
    sources:
      - {model: $/a, layer_range: [1, 2], parameters: {weight: [{filter: mlp, value: 0}]}}
      - {model: $/b, layer_range: [1, 2]}
",
    );
    let (a, b, merged) = (tensors(1, 2), tensors(2, 2), loaded(store.as_ref()));
    let first = "model.layers.0.mlp.up_proj.weight";
    assert_eq!(merged[first], a[first]);
    let second = "model.layers.1.mlp.up_proj.weight";
    assert_eq!(merged[second], b[second]);
    // No filter matches, so the whole merge's weight counts.
    let norm = "model.layers.1.input_layernorm.weight";
    let mean = (a[norm].1[0] + b[norm].1[0]) / 2.0;
    assert!((merged[norm].1[0] - mean).abs() < 1e-6);
}

#[test]
fn an_adapter_is_added_to_its_model() {
    let place = Place::with_models(1);
    let name = "model.layers.0.mlp.up_proj.weight";
    let mut adapter = Tensors::new();
    let prefix = "base_model.model.model.layers.0.mlp.up_proj";
    adapter.insert(
        format!("{prefix}.lora_A.weight"),
        (vec![1, 4], vec![1.0, 2.0, 3.0, 4.0]),
    );
    adapter.insert(
        format!("{prefix}.lora_B.weight"),
        (vec![6, 1], vec![1.0; 6]),
    );
    let file = crate::fixture::safetensors(&adapter);
    place.file("lora", "adapter_model.safetensors", &file);
    let config = json!({"r": 1, "lora_alpha": 2, "peft_type": "LORA"}).to_string();
    place.file("lora", "adapter_config.json", config.as_bytes());
    let store = place.merged("merge_method: passthrough\nmodels: [{model: $/a+$/lora}]");
    let (a, merged) = (tensors(1, 1), loaded(store.as_ref()));
    for (at, value) in merged[name].1.iter().enumerate() {
        let expected = a[name].1[at] + 2.0 * (at % 4 + 1) as f32;
        assert!((value - expected).abs() < 1e-6);
    }
    assert_eq!(merged["model.norm.weight"], a["model.norm.weight"]);
}

#[test]
fn files_of_paddle_are_merged_as_models_are() {
    let place = Place::with_models(2);
    for (name, seed) in [("pa", 1), ("pb", 2)] {
        place.file(name, "model_state.pdparams", &pdparams(&tensors(seed, 2)));
        place.file(name, "config.json", b"{\"model_type\": \"llama\"}");
    }
    for method in ["linear", "ties", "dare_linear", "della", "slerp"] {
        let text = |names: [&str; 2]| {
            let [a, b] = names.map(|name| format!("$/{name}"));
            json!({
                "model_path_list": [a, b], "weight_list": [1, 3], "merge_method": method,
            })
            .to_string()
        };
        let ours = place.merged(&text(["pa", "pb"]));
        let expected = place.merged(&text(["a", "b"]));
        assert_eq!(loaded(ours.as_ref()), loaded(expected.as_ref()), "{method}");
        assert_eq!(
            json_file(ours.as_ref(), "config.json")["model_type"],
            "llama"
        );
    }
}

#[test]
fn an_adapter_of_paddle_is_added_to_a_fused_weight() {
    let place = Place::new();
    let name = "llama.layers.0.self_attn.qkv_proj";
    // Two inputs; two outputs for the queries, and one each for keys and values.
    let weight = (vec![2, 4], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let base = Tensors::from([(format!("{name}.weight"), weight)]);
    place.file("base", "model_state.pdparams", &pdparams(&base));
    place.file("base", "config.json", b"{}");
    let adapter = Tensors::from([
        (format!("{name}.lora_A"), (vec![2, 1], vec![1.0, 10.0])),
        (
            format!("{name}.lora_B"),
            (vec![1, 4], vec![1.0, 2.0, 3.0, 4.0]),
        ),
    ]);
    place.file("lora", "lora_model_state.pdparams", &pdparams(&adapter));
    for (config, scale) in [
        (json!({"r": 1, "lora_alpha": 3}), 3.0),
        (json!({"r": 1, "lora_alpha": 2, "rslora": true}), 2.0),
    ] {
        place.file("lora", "lora_config.json", config.to_string().as_bytes());
        let store = place.merged(r#"{"base_model_path": "$/base", "lora_model_path": "$/lora"}"#);
        let merged = &loaded(store.as_ref())[&format!("{name}.weight")];
        let change = [1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0];
        let expected: Vec<f32> = change
            .iter()
            .enumerate()
            .map(|(at, x)| at as f32 + scale * x)
            .collect();
        assert_eq!(merged, &(vec![2, 4], expected));
    }
}

#[test]
fn paddle_removes_keys_and_copies_the_files_it_lists() {
    let place = Place::with_models(1);
    let store = place.merged(
        r#"{"model_path_list": ["$/a", "$/b"], "weight_list": [1, 3], "merge_method": "linear",
            "remove_keys": ["lm_head.weight"], "copy_file_list": ["tokenizer.json"]}"#,
    );
    let (linear, merged) = (
        loaded(place.merged(LINEAR).as_ref()),
        loaded(store.as_ref()),
    );
    assert_eq!(merged.len(), linear.len() - 1);
    for (name, tensor) in &merged {
        assert_eq!(tensor, &linear[name]);
    }
    let names: Vec<String> = files(store.as_ref()).into_keys().collect();
    assert!(names.contains(&"tokenizer.json".to_string()));
}
