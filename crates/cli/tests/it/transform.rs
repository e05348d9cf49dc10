//! Recipes on the way from one place to another, and the recipes that ship with Cairn.

use crate::fixture::{Place, floats};
use serde_json::json;

/// A model of two weights and a norm, with a description.
fn place() -> Place {
    let place = Place::empty();
    std::fs::create_dir(place.path("hf")).unwrap();
    let numbers =
        |from: u8, count: u8| -> Vec<f32> { (from..from + count).map(f32::from).collect() };
    place.safetensors(
        "hf/model.safetensors",
        &[
            ("gate.weight", "F32", &[2, 3], floats(&numbers(0, 6))),
            ("up.weight", "F32", &[2, 3], floats(&numbers(10, 6))),
            ("norm.weight", "F32", &[3], floats(&numbers(20, 3))),
        ],
    );
    std::fs::write(place.path("hf/config.json"), r#"{"n": 2}"#).unwrap();
    let recipe = "# Fused.\ngate.weight^T, up.weight^T -> fused.weight, axis=1\nif n: norm.weight -> ln.{n}, dtype=bfloat16\n";
    std::fs::write(place.path("fuse.recipe"), recipe).unwrap();
    place
}

#[test]
fn a_model_is_converted_through_a_recipe() {
    let place = place();
    let convert = [
        "convert",
        "hf",
        "out",
        "--to",
        "hf",
        "--recipe",
        "fuse.recipe",
    ];
    place.json(&convert);
    let found = place.json(&["inspect", "out", "--tree"]);
    let tensors = found["tree"].as_array().unwrap().iter();
    let names: Vec<&str> = tensors
        .map(|tensor| tensor["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["fused.weight", "ln.2"]);
    let fused = place.json(&["cat", "out", "fused.weight"]);
    let expected = json!([[0, 3, 10, 13], [1, 4, 11, 14], [2, 5, 12, 15]]);
    assert_eq!(fused["values"], expected);
    assert_eq!(place.json(&["cat", "out", "ln.2"])["dtype"], json!("bf16"));
}

#[test]
fn a_recipe_is_undone_in_reverse() {
    let place = place();
    let recipe = "gate.weight^T, up.weight^T -> fused.weight, axis=1\n";
    std::fs::write(place.path("both.recipe"), recipe).unwrap();
    let options = ["--to", "hf", "--recipe", "both.recipe"];
    place.json(&[&["convert", "hf", "there"], &options[..]].concat());
    place.json(&[&["convert", "there", "back", "--reverse"], &options[..]].concat());
    for name in ["gate.weight", "up.weight", "norm.weight"] {
        let value = |path: &str| place.json(&["cat", path, name])["values"].clone();
        assert_eq!(value("back"), value("hf"), "{name}");
    }
}

#[test]
fn a_run_is_laid_out_anew_through_recipes_one_after_another() {
    let place = place();
    std::fs::write(
        place.path("next.recipe"),
        "fused.weight -> a, b, axis=0, sizes=[1, 2]\n",
    )
    .unwrap();
    place.json(&[
        "reshard",
        "hf",
        "run",
        "--mesh",
        "tp=2",
        "--shard",
        "b=-,tp",
        "--recipe",
        "fuse.recipe",
        "--set",
        "n=7",
        "--recipe",
        "next.recipe",
    ]);
    let values = |name: &str| place.json(&["cat", "run", name])["values"].clone();
    assert_eq!(values("a"), json!([[0, 3, 10, 13]]));
    assert_eq!(values("b"), json!([[1, 4, 11, 14], [2, 5, 12, 15]]));
    assert_eq!(values("ln.7"), json!([20, 21, 22]));
}

#[test]
fn what_is_wrong_with_a_recipe_is_shown() {
    let place = place();
    let wrong = "gate.weight, upp.weight -> x, axis=0\n";
    std::fs::write(place.path("wrong.recipe"), wrong).unwrap();
    for (rest, code, said) in [
        (
            vec!["--recipe", "wrong.recipe"],
            1,
            "there is no tensor `upp.weight`",
        ),
        (vec!["--recipe", "wrong.recipe"], 1, "^^^^^^^^^^"),
        (
            vec!["--recipe", "llama/hf-to-megatro"],
            2,
            "did you mean `llama/hf-to-megatron`?",
        ),
        (
            vec!["--recipe", "llama/hf-to-megatron"],
            2,
            "--set num_attention_heads=",
        ),
        (
            vec!["--recipe", "fuse.recipe", "--set", "n"],
            2,
            "expected NAME=VALUE",
        ),
        (vec!["--reverse"], 2, "--recipe"),
    ] {
        let output = place.output(&[&["convert", "hf", "out", "--to", "hf"], &rest[..]].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{rest:?}: {text}");
        assert!(text.contains(said), "{rest:?}: {text}");
    }
    assert!(!place.path("out").exists());
}

#[test]
fn shipped_recipes_are_listed_and_printed() {
    let place = Place::empty();
    let listed = place.json(&["recipe", "list"]);
    let listed = listed["recipes"].as_array().unwrap().iter();
    let names: Vec<&str> = listed
        .map(|recipe| recipe["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"llama/hf-to-megatron") && names.contains(&"deepseek_v3/fp8-to-bf16"));
    let shown = place.cairn(&["recipe", "show", "qwen3_moe/paddle-to-hf"]);
    assert!(
        shown.contains("# Qwen3-MoE between Hugging Face and Paddle."),
        "{shown}"
    );
    assert!(shown.contains("use it with `--reverse`"), "{shown}");
    let shown = place.json(&["recipe", "show", "llama/hf-to-megatron"]);
    assert_eq!(shown["reverse"], json!(false));
    let settings = shown["settings"].as_array().unwrap();
    assert!(
        settings.contains(&json!("num_attention_heads")),
        "{settings:?}"
    );
}
