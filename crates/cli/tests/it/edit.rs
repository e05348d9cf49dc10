//! `cairn edit`: what changes, what does not, and what is refused.

use crate::fixture::{Place, check};
use serde_json::{Value, json};

fn values(place: &Place, path: &str, tensor: &str) -> Value {
    place.json(&["cat", path, tensor])["values"].clone()
}

/// Edits and returns what was reported.
fn edit(place: &Place, args: &[&str]) -> Value {
    place.json(&[&["edit"], args].concat())
}

#[test]
fn a_run_gets_a_new_step_laid_out_as_the_old_one() {
    let place = Place::with_run();
    let before = values(&place, "run/step-00000020", "model.norm.weight");
    check!(place.cairn(&["edit", "run", "model.norm.weight[model.norm.weight >= 6] = 0.5", "model.norm.weight[1::2] = -1"]), @"
    exit code 0
    ----- stdout
    wrote    step 21 of `file://[DIR]/run`
    edits    2 assignments
    tensors  9
    files    4 files, 18.9 KiB
    memory   at most 512.0 MiB

    FILE               TENSORS     SIZE
    00000.safetensors        4  5.2 KiB
    00001.safetensors        4  5.1 KiB
    00002.safetensors        5  4.3 KiB
    00003.safetensors        5  4.3 KiB
    ----- stderr
    warning: values that each rank saved for itself are left out: `rng`
    ");
    assert_eq!(
        values(&place, "run", "model.norm.weight"),
        json!([0, -1, 2, -1, 4, -1, 0.5, -1])
    );
    let old = "run/step-00000020";
    assert_eq!(values(&place, old, "model.norm.weight"), before);
    let spec = |path| place.json(&["inspect", path, "--tree"])["tree"][0]["sharding"].clone();
    assert_eq!(spec("run"), spec(old));
    let taken = place.output(&["edit", "run", "model.norm.weight = 0", "--step", "20"]);
    assert_eq!(taken.status.code(), Some(1));
}

#[test]
fn a_model_is_edited_into_another_place_and_other_names() {
    let place = Place::with_model();
    check!(place.cairn(&["edit", "hf", "optimizer.step = 7"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: an edit of `hf` needs another place for its result

    hint: name it with `--out`; only a run keeps the old version beside the new one
    ");
    let args = [
        "hf",
        "optimizer.step = 7",
        "--rename",
        "optimizer.step=steps",
        "--delete",
        "model.layers.*",
        "--out",
        "edited",
    ];
    let report = edit(&place, &args);
    assert_eq!(report["deleted"], 4);
    assert_eq!(values(&place, "edited", "steps"), json!(7));
    assert_eq!(
        std::fs::read(place.path("edited/config.json")).unwrap(),
        b"{}"
    );
    let again = place.output(&[&["edit"], &args[..]].concat());
    assert_eq!(again.status.code(), Some(1), "a model is in the way");
}

#[test]
fn rows_come_from_an_array_and_have_its_shape() {
    let place = Place::with_model();
    let rows = "optimizer.exp_avg[10:13]";
    let cat = ["cat", "hf", rows, "--npy", "rows.npy"];
    assert!(place.output(&cat).status.success());
    let assign = "optimizer.exp_avg[5:2:-1] = rows.npy";
    edit(&place, &["hf", assign, "--out", "edited"]);
    assert_eq!(
        values(&place, "edited", "optimizer.exp_avg[2:7]"),
        json!([2, 12, 11, 10, 6])
    );
    check!(place.cairn(&["edit", "hf", "optimizer.exp_avg[:2] = rows.npy", "--out", "other"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot make the edit `optimizer.exp_avg[:2] = rows.npy`: `rows.npy` has the shape [3], and [2] was picked

    hint: an edit is `name[index] = value`, such as `'w[0, :4] = 0'` or `'w[isnan(w)] = 0'`
    ");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_written() {
    let place = Place::with_model();
    for edit in [
        "optimizer.step = 1.5",
        "optimizer.step",
        "optimizer.stepp = 1",
        "optimizer.exp_avg[30] = 1",
        "optimizer.exp_avg[[1, 2]] = 1",
        "optimizer.exp_avg[optimizer.exp_avg ~ 3] = 1",
        "optimizer.exp_avg = one",
    ] {
        let output = place.output(&["edit", "hf", edit, "--out", "out"]);
        assert_eq!(output.status.code(), Some(2), "{edit}: {output:?}");
    }
    let twice = [
        "edit",
        "hf",
        "--rename",
        "optimizer.step=model.norm.weight",
        "--out",
        "out",
    ];
    assert_eq!(place.output(&twice).status.code(), Some(2));
    assert!(!place.path("out").exists());
}
