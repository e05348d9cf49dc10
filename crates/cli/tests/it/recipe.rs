//! `cairn recipe explain`: a table for people, JSON for programs, and mistakes with a mark under them.

use crate::fixture::{Place, check};
use serde_json::{Value, json};

const JOIN: &str = "\
gate^T, up^T -> gate_up, axis=-1, dtype=bfloat16
embed -> embed, pad_to_multiple=4
bias -> _
";

/// A model in one file, and a recipe.
fn place(recipe: &str) -> Place {
    let place = Place::empty();
    let zeros = |count: usize| vec![0; 4 * count];
    place.safetensors(
        "model.safetensors",
        &[
            ("gate", "F32", &[8, 4], zeros(32)),
            ("up", "F32", &[8, 4], zeros(32)),
            ("embed", "F32", &[6, 4], zeros(24)),
            ("bias", "F32", &[4], zeros(4)),
        ],
    );
    std::fs::write(place.path("join.recipe"), recipe).unwrap();
    place
}

const EXPLAIN: [&str; 5] = [
    "recipe",
    "explain",
    "join.recipe",
    "--sources",
    "model.safetensors",
];

#[test]
fn a_recipe_is_shown_as_the_guide_shows_it() {
    let output = place(JOIN).output(&EXPLAIN);
    let shown = String::from_utf8(output.stdout).unwrap();
    let guide = include_str!("../../../../docs/guide/recipes.md");
    let command = format!("$ cat join.recipe\n{JOIN}$ cairn {}\n", EXPLAIN.join(" "));
    assert!(guide.contains(&(command + &shown)), "{shown}");
}

#[test]
fn a_mistake_is_marked_and_exits_with_one() {
    check!(place("gate -> g\ngate, upp -> x, axis=0").cairn(&EXPLAIN), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: there is no tensor `upp`
      statement 2  gate, upp -> x, axis=0
                         ^^^

    hint: did you mean `up`?
    ");
}

#[test]
fn a_mistake_is_json_on_stdout_where_json_is_asked_for() {
    let output = place("gate, embed -> x").output(&[&EXPLAIN[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = said["error"].as_object().unwrap();
    assert_eq!(error["kind"], "attribute");
    assert_eq!(error["statement"], "gate, embed -> x");
    assert!(
        error.contains_key("message") && error.contains_key("hint"),
        "{error:?}"
    );
}

#[test]
fn json_brings_its_own_tensors_and_a_model_goes_before_them() {
    let place = place("");
    let shard = json!([{"dtype": "float32", "global_shape": [2], "local_shape": [2], "global_offset": [0]}]);
    let request = json!({"statements": ["bias -> b"], "sources": {"bias": shard}, "targets": null});
    std::fs::write(place.path("program.json"), request.to_string()).unwrap();
    let own = place.json(&["recipe", "explain", "program.json"]);
    assert_eq!(own["targets"]["b"]["shape"], json!([2]));
    let model = place.json(&[
        "recipe",
        "explain",
        "program.json",
        "--sources",
        "model.safetensors",
    ]);
    assert_eq!(model["targets"]["b"]["shape"], json!([4]));
    assert_eq!(model["targets"].as_object().unwrap().len(), 4);
}
