//! Arrays that TensorStore wrote, with chunks that do not divide them, and descriptions that lie.

use super::*;
use crate::reading::{bytes, fixture};
use cairn_store::{Memory, PutMode};
use cairn_tensor::DType;
use serde_json::{Value, json};

fn model(store: &dyn Store, name: &str, sparse: bool) -> Result<Model, Error> {
    let entries = Entries::of_folder(store, "")?;
    let mut model = Model::default();
    let tensor = Arrays::new(store, &entries, sparse).tensor(name, &mut model)?;
    model.tensors.insert(name.to_string(), tensor);
    Ok(model)
}

fn counted() -> Vec<u8> {
    (0..35_i16).flat_map(i16::to_le_bytes).collect()
}

#[test]
fn chunks_at_the_edges_are_cut() {
    let store = fixture("orbax/arrays");
    for name in ["edges", "columns", "shards"] {
        let model = model(&store, name, false).unwrap();
        assert_eq!(model.tensors[name].dtype, DType::I16);
        assert_eq!(bytes(&store, &model, name).unwrap(), counted(), "{name}");
    }
    assert_eq!(
        names(&Entries::of_folder(&store, "").unwrap()),
        ["blosc", "columns", "edges", "holes", "shards"]
    );
}

#[test]
fn what_was_not_stored_is_zero_if_that_is_allowed() {
    let store = fixture("orbax/arrays");
    assert!(model(&store, "holes", false).is_err());
    let model = model(&store, "holes", true).unwrap();
    let mut expected = counted();
    for row in 3..6 {
        expected[10 * row..10 * row + 4].fill(0);
    }
    assert_eq!(bytes(&store, &model, "holes").unwrap(), expected);
}

#[test]
fn other_compressions_are_refused_by_name() {
    let store = fixture("orbax/arrays");
    let error = model(&store, "blosc", false).unwrap_err().to_string();
    assert!(error.contains("blosc"), "{error}");
}

/// A description like that of `edges`, changed.
fn described(change: impl FnOnce(&mut Value)) -> Result<Model, Error> {
    let mut json = json!({
        "chunks": [3, 2], "compressor": null, "dimension_separator": ".", "dtype": "<i2", "fill_value": 0,
        "filters": null, "order": "C", "shape": [7, 5], "zarr_format": 2
    });
    change(&mut json);
    let store = Memory::new();
    store
        .put("x/.zarray", json.to_string().as_bytes(), PutMode::Create)
        .unwrap();
    store.put("x/0.0", &[0; 12], PutMode::Create).unwrap();
    model(&store, "x", true)
}

#[test]
fn descriptions_that_lie_are_refused() {
    assert!(described(|_| {}).is_ok());
    let huge = json!([u64::MAX, u64::MAX]);
    for (key, value) in [
        ("shape", json!([7])),
        ("shape", huge.clone()),
        ("shape", json!([-1, 5])),
        ("shape", json!([1_u64 << 40, 5])),
        ("chunks", json!([0, 2])),
        ("chunks", huge),
        ("chunks", json!([1_u64 << 62, 4])),
        ("chunks", json!([4, 2])),
        ("dtype", json!(">i2")),
        ("dtype", json!([["a", "<i2"]])),
        ("filters", json!([{"id": "delta"}])),
        ("zarr_format", json!(1)),
        ("fill_value", json!(7)),
    ] {
        assert!(
            described(|json| json[key] = value.clone()).is_err(),
            "{key}: {value}"
        );
    }
}

#[test]
fn chunks_outside_of_the_grid_are_refused() {
    let store = Memory::new();
    for meta in fixture("orbax/arrays").list("edges").unwrap() {
        let bytes = fixture("orbax/arrays").get(&meta.key).unwrap();
        store.put(&meta.key, &bytes, PutMode::Create).unwrap();
    }
    store.put("edges/00.0", b"", PutMode::Create).unwrap();
    store.put("edges/notes", b"", PutMode::Create).unwrap();
    assert!(model(&store, "edges", false).is_ok(), "these are no chunks");
    store.put("edges/3.0", b"", PutMode::Create).unwrap();
    let error = model(&store, "edges", false).unwrap_err().to_string();
    assert!(error.contains("chunk `3.0` lies outside"), "{error}");
}
