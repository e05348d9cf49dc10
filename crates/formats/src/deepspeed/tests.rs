//! Steps that DeepSpeed 0.19 wrote on two ranks (see `fixtures/deepspeed/generate.py`), against what its own tools make of
//! them; and steps that lie.

use crate::model::Model;
use crate::reading::{self, bytes};
use crate::{Error, hf, open};
use cairn_store::{Local, Memory, PutMode, Store};
use cairn_tensor::DType;
use serde_json::json;
use std::collections::BTreeMap;

fn fixture(name: &str) -> Local {
    reading::fixture(&format!("deepspeed/{name}"))
}

/// A fixture that can be changed.
fn copy(name: &str) -> Memory {
    let (from, to) = (fixture(name), Memory::new());
    for meta in from.list("").unwrap() {
        if !meta.key.ends_with("expected.safetensors") {
            let bytes = from.get(&meta.key).unwrap();
            to.put(&meta.key, &bytes, PutMode::Create).unwrap();
        }
    }
    to
}

fn assert_as_expected(step: &str, expected: &str) -> Model {
    let store = fixture(step);
    let model = match step.ends_with("universal") {
        true => open(&store),
        false => open(&copy(step)),
    };
    let model = model.unwrap();
    assert_eq!(model.format, "deepspeed");
    let oracle = fixture(expected);
    let expected = hf::open_files(&oracle, &["expected.safetensors"]).unwrap();
    for name in expected.names() {
        let (found, wanted) = (model.find(name).unwrap(), expected.find(name).unwrap());
        assert_eq!(found.dtype, wanted.dtype, "{name}");
        assert_eq!(
            bytes(&store, &model, name).unwrap(),
            bytes(&oracle, &expected, name).unwrap(),
            "{name}"
        );
    }
    assert_eq!(model.tensors["embed"].shape, [7, 5]);
    assert_eq!(model.tensors["optimizer.embed.exp_avg"].shape, [7, 5]);
    assert_eq!(
        model.aliases,
        BTreeMap::from([("head.weight".into(), "embed".into())])
    );
    assert_eq!(model.values["epoch"], json!(2));
    assert_eq!(
        model.values["optimizer.param_groups"][0]["weight_decay"],
        json!(0.1)
    );
    assert!(!model.values.contains_key("param_shapes"));
    model
}

#[test]
fn a_step_cut_by_group_is_as_deepspeed_puts_it_together() {
    let model = assert_as_expected("zero1", "zero1");
    // DeepSpeed's own tool loses what is frozen at stage 1.
    assert_eq!(model.tensors["frozen.weight"].dtype, DType::Bf16);
    assert_eq!(model.tensors["embed"].pieces.len(), 2, "read where it lies");
    assert_eq!(model.tensors["optimizer.embed.step"].shape, [0; 0]);
    assert_as_expected("zero2", "zero2");
}

#[test]
fn a_step_cut_by_parameter_is_as_deepspeed_puts_it_together() {
    let model = assert_as_expected("zero3", "zero3");
    assert_eq!(model.tensors["frozen.weight"].shape, [5, 5]);
    assert_eq!(model.tensors["optimizer.inner.bias.step"].dtype, DType::F32);
}

#[test]
fn the_universal_form_is_read() {
    let model = assert_as_expected("zero2-universal", "zero2");
    assert_eq!(model.tensors["optimizer.inner.weight.step"].shape, [0; 0]);
    let model = assert_as_expected("zero3-universal", "zero3");
    assert_eq!(model.tensors["frozen.weight"].pieces.len(), 2);
}

#[test]
fn a_step_opens_by_its_own_folder_too() {
    let run = copy("zero2");
    let step = Memory::new();
    for meta in run.list("global_step3").unwrap() {
        let name = meta.key.rsplit('/').next().unwrap();
        let bytes = run.get(&meta.key).unwrap();
        step.put(name, &bytes, PutMode::Create).unwrap();
    }
    assert_eq!(
        open(&step).unwrap().tensors.len(),
        open(&run).unwrap().tensors.len()
    );
}

#[test]
fn a_step_without_the_part_of_a_rank_is_unfinished() {
    for (name, missing) in [
        ("zero1", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        ("zero1", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"),
    ] {
        let store = copy(name);
        store.delete(&format!("global_step3/{missing}")).unwrap();
        let error = open(&store).unwrap_err();
        assert!(matches!(error, Error::Unfinished { .. }), "{error}");
    }
}

#[test]
fn without_any_part_there_are_the_stored_weights_or_nothing() {
    for (name, is_whole) in [("zero1", true), ("zero3", false)] {
        let store = copy(name);
        for rank in 0..2 {
            let file = format!("bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt");
            store.delete(&format!("global_step3/{file}")).unwrap();
        }
        let opened = open(&store);
        assert_eq!(opened.is_ok(), is_whole, "{name}");
        if let Ok(model) = opened {
            assert_eq!(model.tensors["embed"].dtype, DType::Bf16);
        }
    }
}

#[test]
fn ranks_of_other_kinds_are_refused_by_name() {
    let store = copy("zero1");
    let name = "global_step3/mp_rank_01_model_states.pt";
    store.put(name, b"", PutMode::Create).unwrap();
    let error = open(&store).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("tensor-, pipeline- or expert-parallel"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("ds_to_universal"));
}

#[test]
fn a_file_called_latest_of_somebody_else_means_nothing() {
    let store = Memory::new();
    for text in ["../elsewhere", "model", "\0", ""] {
        store
            .put("latest", text.as_bytes(), PutMode::Replace)
            .unwrap();
        assert!(matches!(open(&store).unwrap_err(), Error::NotAModel { .. }));
    }
}

#[test]
fn files_cut_anywhere_are_refused_without_a_panic() {
    let name = "global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
    let whole = copy("zero3").get(name).unwrap();
    for len in (0..whole.len()).step_by(97) {
        let store = copy("zero3");
        store.put(name, &whole[..len], PutMode::Replace).unwrap();
        assert!(open(&store).is_err(), "{len} bytes");
    }
}

#[test]
fn damaged_files_never_panic() {
    let name = "global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt";
    let store = copy("zero1");
    let whole = store.get(name).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        store.put(name, &bytes, PutMode::Replace).unwrap();
        drop(open(&store));
    }
}
