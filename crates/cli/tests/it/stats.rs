//! What `cairn stats` says about values.

use crate::fixture::{Place, check, floats};
use serde_json::json;

fn place() -> Place {
    let place = Place::empty();
    let bell: Vec<f32> = (0..4096_u32)
        .map(|n| {
            (0..12)
                .map(|k| ((n * 7919 + k * 104_729) % 1000) as f32 / 1000.0 - 0.5)
                .sum()
        })
        .collect();
    place.safetensors(
        "m.safetensors",
        &[
            ("h.0.w", "F32", &[4096], floats(&bell)),
            (
                "h.2.w",
                "F32",
                &[4],
                floats(&[1.0, 0.0, f32::NAN, f32::INFINITY]),
            ),
            ("h.10.w", "BF16", &[2], vec![0x80, 0x3f, 0x80, 0xbf]),
            ("steps", "I64", &[], 7_i64.to_le_bytes().to_vec()),
            ("none", "F32", &[0], vec![]),
            ("c", "C64", &[1], floats(&[3.0, 4.0])),
        ],
    );
    place
}

#[test]
fn layers_are_one_line_and_what_is_wrong_is_counted() {
    check!(place().cairn(&["stats", "m.safetensors", "--hist=ascii"]), @"
    exit code 0
    ----- stdout
    PATTERN  COUNT  DTYPE           MEAN    STD  MIN  MAX  ZEROS  NAN  INF  HISTOGRAM
    c            1  c64              3.5    0.5    3    4     0%    0    0  #                      #
    h.#.w        3  f32, bf16  -0.006921  0.405   -1    1  <0.1%    1    1  _.:.-=-+++*##*+*=-=:..__
    none         1  f32                                             0    0
    steps        1  i64                7      0    7    7     0%    0    0  #
    ----- stderr
    read 16.0 KiB in [SECONDS] s
    ");
}

#[test]
fn each_tensor_has_a_line_when_asked() {
    check!(place().cairn(&["stats", "m.safetensors", "--each", "--keys", "h.*", "--hist"]), @"
    exit code 0
    ----- stdout
    PATTERN  COUNT  DTYPE       MEAN     STD     MIN    MAX  ZEROS  NAN  INF  HISTOGRAM
    h.0.w        1  f32    -0.007172  0.4042  -0.886  0.874     0%    0    0  ▃▂▂▄▄▅▅▆▇▆████▆▇▆▅▄▅▃▂▂▂
    h.2.w        1  f32          0.5     0.5       0      1  25.0%    1    1  █                      █
    h.10.w       1  bf16           0       1      -1      1     0%    0    0  █                      █
    ----- stderr
    read 16.0 KiB in [SECONDS] s
    ");
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let place = Place::with_run();
    let one = place.json(&["stats", "run", "--threads", "1", "--hist"]);
    assert_eq!(
        place.json(&["stats", "run", "--threads", "5", "--hist"]),
        one
    );
    // Tied tensors are looked at once.
    assert_eq!(one["tensors"], 8);
}

#[test]
fn numbers_are_exact_where_they_can_be() {
    let report = place().json(&["stats", "m.safetensors", "--keys", "h.2.w"]);
    assert_eq!(
        report["patterns"][0],
        json!({
            "pattern": "h.#.w", "count": 1, "dtype": "f32", "elements": 4, "nan": 1, "infinite": 1, "zeros": 1,
            "sparsity": 0.25, "mean": 0.5, "std": 0.5, "min": 0.0, "max": 1.0, "absmax": 1.0,
        })
    );
}
