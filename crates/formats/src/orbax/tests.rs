//! Checkpoints that Orbax 0.12 wrote on eight devices (see `fixtures/orbax/generate.py`), and some that were damaged.

use crate::model::{Form, Model};
use crate::reading::{bytes, fixture};
use crate::{Error, open};
use cairn_store::{Memory, PutMode, Store};
use cairn_tensor::DType;
use serde_json::{Value, json};

const FORMS: [&str; 5] = ["zarr2", "zarr2-plain", "zarr3", "ocdbt2", "ocdbt3"];

/// A fixture that can be changed.
fn copy(name: &str) -> Memory {
    let (from, to) = (fixture(&format!("orbax/{name}")), Memory::new());
    for meta in from.list("").unwrap() {
        let bytes = from.get(&meta.key).unwrap();
        to.put(&meta.key, &bytes, PutMode::Create).unwrap();
    }
    to
}

fn floats(values: std::ops::Range<u8>) -> Vec<u8> {
    values
        .flat_map(|value| f32::from(value).to_le_bytes())
        .collect()
}

fn assert_state(store: &dyn Store, model: &Model) {
    assert_eq!(model.format, "orbax");
    let w = &model.tensors["params.w"];
    assert_eq!((w.dtype, w.shape.as_slice()), (DType::F32, &[8, 6][..]));
    assert_eq!(bytes(store, model, "params.w").unwrap(), floats(0..48));
    assert_eq!(model.tensors["params.b"].dtype, DType::Bf16);
    assert_eq!(
        bytes(store, model, "params.b").unwrap(),
        [0, 0, 0x80, 0x3f, 0, 0x40]
    );
    assert_eq!(
        bytes(store, model, "params.zeros").unwrap(),
        vec![0; 24_000]
    );
    assert_eq!(bytes(store, model, "list.0").unwrap(), 4_i32.to_le_bytes());
    assert_eq!(model.tensors["list.1"].shape, [6]);
    let values: Vec<(&str, Value)> = vec![
        ("empty", json!({})),
        ("lr", json!(0.5)),
        ("name", json!("run")),
        ("none", Value::Null),
        ("step", json!(3)),
    ];
    let found = model
        .values
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    assert_eq!(found.collect::<Vec<_>>(), values);
    assert_eq!(model.tensors.len(), 5);
}

#[test]
fn a_state_is_the_same_in_every_form() {
    for name in FORMS {
        let store = fixture(&format!("orbax/{name}"));
        assert_state(&store, &open(&store).unwrap());
    }
}

#[test]
fn arrays_are_read_by_the_shards_they_were_written_in() {
    for name in FORMS {
        let store = fixture(&format!("orbax/{name}"));
        let model = open(&store).unwrap();
        let w = &model.tensors["params.w"];
        assert_eq!(w.pieces.len(), 8, "{name}");
        assert_eq!(w.pieces[3].piece.region.extent, [2, 3]);
    }
}

#[test]
fn of_a_run_the_newest_step_is_opened_with_all_its_items() {
    let store = fixture("orbax/manager");
    let model = open(&store).unwrap();
    assert_eq!(model.values["notes"], json!({"at": 10}));
    assert_eq!(model.values["state.step"], json!(3));
    assert_eq!(bytes(&store, &model, "state.params.b").unwrap().len(), 6);
}

#[test]
fn a_step_without_its_commit_is_unfinished() {
    let store = copy("zarr2");
    let text = store.get("_CHECKPOINT_METADATA").unwrap();
    let mut step: Value = serde_json::from_slice(&text).unwrap();
    step["commit_timestamp_nsecs"] = Value::Null;
    let text = step.to_string();
    store
        .put("_CHECKPOINT_METADATA", text.as_bytes(), PutMode::Replace)
        .unwrap();
    assert!(matches!(
        open(&store).unwrap_err(),
        Error::Unfinished { .. }
    ));
    store
        .put("commit_success.txt", b"", PutMode::Create)
        .unwrap();
    open(&store).unwrap();
}

#[test]
fn a_missing_chunk_is_damage_unless_zeros_were_left_out() {
    let store = copy("zarr2");
    store.delete("params.w/2.1").unwrap();
    let error = open(&store).unwrap_err().to_string();
    assert!(error.contains("1 of 8 chunks are missing"), "{error}");
    let text = String::from_utf8(store.get("_METADATA").unwrap()).unwrap();
    let text = text.replace("fill_value\": true", "fill_value\": false");
    store
        .put("_METADATA", text.as_bytes(), PutMode::Replace)
        .unwrap();
    let model = open(&store).unwrap();
    let zeros = model.files.iter().filter(|file| file.form == Form::Zeros);
    assert_eq!(zeros.count(), 1);
    let w = bytes(&store, &model, "params.w").unwrap();
    assert_eq!(w[4 * 27..4 * 30], [0; 12], "row 4, columns 3 to 5");
    assert_ne!(w[4 * 26..4 * 27], [0; 4]);
}

#[test]
fn an_array_that_is_not_there_is_damage() {
    for (name, file) in [
        ("zarr2", "params.b/.zarray"),
        ("zarr3", "params.b/zarr.json"),
    ] {
        let store = copy(name);
        store.delete(file).unwrap();
        assert!(matches!(open(&store).unwrap_err(), Error::Damaged { .. }));
    }
}

/// Opens and reads everything; only that it ends matters.
fn exhaust(store: &Memory) {
    if let Ok(model) = open(store) {
        for name in model.tensors.keys() {
            drop(bytes(store, &model, name));
        }
    }
}

#[test]
fn damaged_files_never_panic() {
    for name in ["zarr2", "zarr3", "ocdbt2"] {
        let store = copy(name);
        for meta in store.list("").unwrap() {
            let whole = store.get(&meta.key).unwrap();
            for at in (0..whole.len()).step_by(1 + whole.len() / 20) {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x55;
                store.put(&meta.key, &bytes, PutMode::Replace).unwrap();
                exhaust(&store);
                store
                    .put(&meta.key, &whole[..at], PutMode::Replace)
                    .unwrap();
                exhaust(&store);
            }
            store.put(&meta.key, &whole, PutMode::Replace).unwrap();
        }
    }
}
