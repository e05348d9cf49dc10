//! What `cairn diff` says about two places, and which exit code it ends with.

use crate::fixture::{Place, check, floats};
use serde_json::json;

#[test]
fn two_steps_that_differ_in_a_plain_value_only() {
    let place = Place::with_run();
    check!(place.cairn(&["diff", "run:10", "run"]), @"
    exit code 1
    ----- stdout
    left     run:10
    right    run
    tensors  8 the same
    values   1 differ

    value  step  10 → 20
    ----- stderr
    compared 5.8 KiB in [SECONDS] s
    ");
    check!(place.cairn(&["diff", "run:10", "run:20", "--keys", "*"]), @"
    exit code 0
    ----- stdout
    left     run:10
    right    run:20
    tensors  8 the same
    ----- stderr
    compared 5.8 KiB in [SECONDS] s
    ");
}

#[test]
fn a_model_in_another_format_and_layout_is_the_same() {
    let place = Place::with_model();
    let output = place.output(&["reshard", "run", "other", "--mesh", "tp=3"]);
    assert!(output.status.success());
    for (left, right) in [("run", "hf"), ("hf", "other"), ("other", "run")] {
        let output = place.output(&[
            "diff", left, right, "--keys", "model.*", "--keys", "lm_head*",
        ]);
        assert_eq!(output.status.code(), Some(0), "{left} {right}");
    }
}

/// Two files that differ in every way there is.
fn place() -> Place {
    let place = Place::empty();
    let layer = |scale: f32| floats(&[0.0, 1.0 * scale, 2.0, -3.0]);
    place.safetensors(
        "a.safetensors",
        &[
            ("same", "F32", &[2], floats(&[1.0, f32::NAN])),
            ("moved", "F32", &[2, 2], layer(1.0)),
            ("broken", "F32", &[2], floats(&[1.0, 2.0])),
            ("model.h.2.w", "F32", &[2, 2], layer(1.0)),
            ("model.h.10.w", "F32", &[2, 2], layer(1.0)),
            ("narrow", "F32", &[2], floats(&[1.0, 2.0])),
            ("reshaped", "F32", &[4], layer(1.0)),
            ("scalar", "I64", &[], (1_i64 << 60).to_le_bytes().to_vec()),
            ("empty", "F32", &[0, 3], vec![]),
            ("flags", "BOOL", &[3], vec![0, 1, 1]),
            ("tiny", "F8_E4M3", &[2], vec![0x38, 0x40]),
            ("gone", "U8", &[1], vec![1]),
        ],
    );
    place.safetensors(
        "b.safetensors",
        &[
            ("same", "F32", &[2], floats(&[1.0, f32::NAN])),
            ("moved", "F32", &[2, 2], layer(1.5)),
            ("broken", "F32", &[2], floats(&[f32::NAN, 2.0])),
            ("h.2.w", "F32", &[2, 2], layer(1.0)),
            ("h.10.w", "F32", &[2, 2], layer(1.0)),
            ("narrow", "BF16", &[2], vec![0x80, 0x3f, 0x00, 0x40]),
            ("reshaped", "F32", &[2, 2], layer(1.0)),
            (
                "scalar",
                "I64",
                &[],
                ((1_i64 << 60) + 1).to_le_bytes().to_vec(),
            ),
            ("empty", "F32", &[0, 3], vec![]),
            ("flags", "BOOL", &[3], vec![0, 0, 1]),
            ("tiny", "F8_E4M3", &[2], vec![0x38, 0x41]),
            ("new", "U8", &[1], vec![1]),
        ],
    );
    place
}

#[test]
fn every_kind_of_difference_is_named() {
    check!(place().cairn(&["diff", "a.safetensors", "b.safetensors"]), @"
    exit code 1
    ----- stdout
    left     a.safetensors
    right    b.safetensors
    tensors  3 the same, 5 differ, 2 of another shape or type, 3 only left, 3 only right

    only left   gone          u8[1]
    only left   model.h.2.w   f32[2, 2]
    only left   model.h.10.w  f32[2, 2]
    only right  h.2.w         f32[2, 2]
    only right  h.10.w        f32[2, 2]
    only right  new           u8[1]
    renamed?    model.h.#.w   → h.#.w (2)
    changed     narrow        f32[2] → bf16[2]
    changed     reshaped      f32[4] → f32[2, 2]

    TENSOR  DIFFERING  MAX ABS    MAX REL  COSINE  NAN  WORST AT
    broken  1 (50.0%)        0          0       1    1
    flags   1 (33.3%)        1          1  0.7071       [1]
    scalar   1 (100%)        1  8.674e-19       1       []
    moved   1 (25.0%)      0.5     0.3333  0.9924       [0, 1]
    tiny    1 (50.0%)     0.25     0.1111   0.999       [1]
    ----- stderr
    compared 102 B in [SECONDS] s
    ");
}

#[test]
fn a_difference_has_numbers() {
    let place = place();
    let output = place.output(&[
        "diff",
        "a.safetensors",
        "b.safetensors",
        "--json",
        "--keys",
        "moved",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        report["differing"][0],
        json!({
            "name": "moved", "elements": 4, "differing_elements": 1, "nan_mismatches": 0, "max_absolute": 0.5,
            "max_relative": 1.0 / 3.0, "cosine": 14.5 / (14.0_f64 * 15.25).sqrt(), "worst": [0, 1],
        })
    );
}

#[test]
fn tolerances_and_types_may_be_let_go() {
    let place = place();
    let code = |args: &[&str]| {
        let args = [&["diff", "a.safetensors", "b.safetensors"], args].concat();
        place.output(&args).status.code().unwrap()
    };
    assert_eq!(code(&["--keys", "same", "--keys", "empty"]), 0);
    assert_eq!(code(&["--keys", "moved", "--atol", "0.4"]), 1);
    assert_eq!(code(&["--keys", "moved", "--atol", "0.5"]), 0);
    assert_eq!(code(&["--keys", "moved", "--rtol", "0.34"]), 0);
    assert_eq!(code(&["--keys", "narrow"]), 1);
    assert_eq!(code(&["--keys", "narrow", "--any-dtype"]), 0);
    assert_eq!(code(&["--keys", "broken", "--atol", "1e30"]), 1);
    assert_eq!(code(&["--keys", "gone"]), 1);
    assert_eq!(code(&["--keys", "nowhere"]), 2);
    assert_eq!(code(&["--atol", "-1"]), 2);
}

#[test]
fn the_parts_of_complex_elements_are_compared_one_by_one() {
    let place = Place::empty();
    let save = |name, values: &[f32]| {
        place.safetensors(name, &[("c", "C64", &[3], floats(values))]);
    };
    save("a.safetensors", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    save("b.safetensors", &[1.0, 2.0, 3.0, 4.5, 5.0, 6.0]);
    let output = place.output(&["diff", "a.safetensors", "b.safetensors", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["differing"][0]["differing_elements"], 1);
    assert_eq!(report["differing"][0]["worst"], json!([1]));
}

#[test]
fn tied_tensors_are_compared_once() {
    let place = Place::with_run();
    let report = place.json(&["diff", "run", "run"]);
    // Eight are stored, one of them under two names.
    assert_eq!(report["compared"], 8);
    assert_eq!(report["same"], true);
    let trusted = place.json(&["diff", "run", "run", "--trust-checksums"]);
    assert_eq!(trusted, report);
}
