//! Models with other tokens.

use crate::fixture::{Place, json_file, loaded, tensors};
use serde_json::json;

/// A tokenizer with these tokens, the last of them added.
fn tokenizer(tokens: &[&str]) -> Vec<u8> {
    let (added, plain) = tokens.split_last().unwrap();
    let vocab: serde_json::Map<String, serde_json::Value> = plain
        .iter()
        .enumerate()
        .map(|(id, token)| (token.to_string(), json!(id)))
        .collect();
    let file = json!({
        "added_tokens": [{"id": plain.len(), "content": added, "special": true}],
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    file.to_string().into_bytes()
}

/// Models `a` and `b` whose tokens differ in order and in one token each.
fn place() -> Place {
    let place = Place::with_models(1);
    place.file(
        "a",
        "tokenizer.json",
        &tokenizer(&["x", "y", "z", "only-a", "<s>"]),
    );
    place.file(
        "b",
        "tokenizer.json",
        &tokenizer(&["y", "x", "z", "only-b", "<s>"]),
    );
    place
}

const EMBEDDING: &str = "model.embed_tokens.weight";

fn row(values: &[f32], row: usize) -> &[f32] {
    &values[row * 4..(row + 1) * 4]
}

#[test]
fn a_union_has_the_tokens_of_all_models() {
    let place = place();
    let store = place.merged(
        "merge_method: linear\ntokenizer_source: union\nparameters: {weight: 1}\nmodels: [{model: $/a}, {model: $/b}]",
    );
    let (a, b, merged) = (tensors(1, 1), tensors(2, 1), loaded(store.as_ref()));
    let (shape, values) = &merged[EMBEDDING];
    assert_eq!(shape, &[6, 4]);
    let mean = |a_row: usize, b_row: usize| -> Vec<f32> {
        let pairs = row(&a[EMBEDDING].1, a_row)
            .iter()
            .zip(row(&b[EMBEDDING].1, b_row));
        pairs.map(|(a, b)| (a + b) / 2.0).collect()
    };
    assert_eq!(row(values, 0), mean(0, 1), "x");
    assert_eq!(row(values, 1), mean(1, 0), "y");
    // A token of one model only has that model's embedding.
    assert_eq!(row(values, 3), row(&a[EMBEDDING].1, 3));
    assert_eq!(row(values, 5), row(&b[EMBEDDING].1, 3));
    assert_eq!(
        json_file(store.as_ref(), "config.json")["vocab_size"],
        json!(6)
    );
    let file = json_file(store.as_ref(), "tokenizer.json");
    assert_eq!(file["added_tokens"][1]["content"], json!("only-b"));
    assert_eq!(file["added_tokens"][1]["id"], json!(5));
}

#[test]
fn one_models_tokens_are_kept_byte_for_byte() {
    let place = place();
    let store = place.merged(
        "merge_method: linear\ntokenizer_source: $/b\nparameters: {weight: 1}\nmodels: [{model: $/a}, {model: $/b}]",
    );
    let expected = tokenizer(&["y", "x", "z", "only-b", "<s>"]);
    assert_eq!(store.get("tokenizer.json").unwrap(), expected);
    let (b, merged) = (tensors(2, 1), loaded(store.as_ref()));
    assert_eq!(row(&merged[EMBEDDING].1, 3), row(&b[EMBEDDING].1, 3));
}

#[test]
fn embeddings_are_padded_and_tokens_chosen() {
    let place = place();
    let store = place.merged(
        "
merge_method: linear
parameters: {weight: 1}
models: [{model: $/a}, {model: $/b}]
tokenizer:
  source: union
  pad_to_multiple_of: 8
  tokens:
    only-a: {source: {kind: zero}, force: true}
    <new>: {source: {kind: model_token, model: $/a, token: y}}
",
    );
    let (a, merged) = (tensors(1, 1), loaded(store.as_ref()));
    let (shape, values) = &merged[EMBEDDING];
    assert_eq!(shape, &[8, 4]);
    assert_eq!(row(values, 3), [0.0; 4]);
    assert_eq!(row(values, 6), row(&a[EMBEDDING].1, 1));
}
