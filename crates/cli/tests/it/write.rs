//! `cairn reshard` and `cairn convert`.

use crate::fixture::{Place, check};
use serde_json::Value;

const RULES: [&str; 4] = [
    "--shard",
    "*.q_proj.weight=tp,-",
    "--shard",
    "*.embed.*=-,tp",
];

fn reshard<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [
        &["reshard", "run", "new", "--mesh", "tp=3"],
        &RULES[..],
        rest,
    ]
    .concat()
}

/// Every value of every tensor, to compare two places.
fn values(place: &Place, path: &str) -> Vec<Value> {
    let tree = place.json(&["inspect", path, "--tree"]);
    let tensors = tree["tree"].as_array().unwrap();
    let names = tensors
        .iter()
        .map(|tensor| tensor["name"].as_str().unwrap());
    names.map(|name| place.json(&["cat", path, name])).collect()
}

#[test]
fn a_checkpoint_is_laid_out_for_another_mesh() {
    let place = Place::with_run();
    check!(place.cairn(&reshard(&[])), @"
    exit code 0
    ----- stdout
    wrote    step 20 of `new`
    mesh     tp=3
    tensors  8
    files    3 files, 14.9 KiB
    memory   at most 1.1 GiB
    ----- stderr
    warning: values that each rank saved for itself are left out: `rng`
    wrote 14.9 KiB in [SECONDS] s
    ");
    check!(place.cairn(&["inspect", "new"]), @"
    exit code 0
    ----- stdout
    format      Cairn checkpoint, version 1
    step        20 (latest)
    saved       [TIME] ([AGE] ago) by cairn 0.1.0
    files       3 files, 14.9 KiB, 3 writers
    tensors     8, 1.25 k elements, 2.9 KiB
    mesh        tp=3
    tags        eval
    values      lr = 0.001, step = 20
    aliases     model.embed.weight = lm_head.weight
    side files  config.json

    PATTERN                       COUNT  SHAPE      DTYPE  SHARDING       SIZE
    lm_head.weight                    1  [64, 16]   bf16   -, tp       2.0 KiB
    model.layers.#.experts            2  [4, 2, 6]  f32    replicated    384 B
    model.layers.#.q_proj.weight      2  [8, 6]     f32    tp, -         384 B
    model.norm.weight                 1  [8]        f32    replicated     32 B
    optimizer.exp_avg                 1  [30]       f32    replicated    120 B
    optimizer.step                    1  []         i64    replicated      8 B
    ----- stderr

    `--tree` lists every tensor, `--map NAME` draws who holds what of one
    ");
    assert_eq!(values(&place, "run"), values(&place, "new"));
    assert_eq!(
        place.json(&["verify", "new", "--read-data"])["steps"][0]["state"],
        "complete"
    );
}

#[test]
fn a_dry_run_prints_the_files_and_writes_none() {
    let place = Place::with_run();
    check!(place.cairn(&reshard(&["--dry-run"])), @"
    exit code 0
    ----- stdout
    would write  step 20 of `new`
    mesh         tp=3
    tensors      8
    files        3 files, 14.9 KiB
    memory       at most 1.1 GiB

    RANK  FILE               PIECES     SIZE
       0  00000.safetensors       4  5.1 KiB
       1  00001.safetensors       4  5.1 KiB
       2  00002.safetensors       6  4.8 KiB
    ----- stderr
    ");
    assert!(!place.path("new").exists());
}

#[test]
fn a_model_becomes_step_0() {
    let place = Place::with_model();
    let found = place.json(&["reshard", "hf", "new", "--mesh", "dp=2"]);
    assert_eq!(found["step"], 0);
    assert_eq!(values(&place, "hf"), values(&place, "new"));
}

#[test]
fn a_committed_step_is_replaced_only_on_request() {
    let place = Place::with_run();
    place.output(&reshard(&[]));
    check!(place.cairn(&reshard(&[])), @"
    exit code 1
    ----- stdout
    ----- stderr
    warning: values that each rank saved for itself are left out: `rng`
    error: step 20 is already committed (attempt `[ATTEMPT]`)

    hint: choose another step with `--step`, or put this one in its place with `--replace`
    ");
    let again = place.output(&reshard(&["--replace"]));
    assert!(again.status.success());
    let other = place.output(&reshard(&["--step", "21"]));
    assert!(other.status.success());
}

#[test]
fn little_memory_is_enough() {
    let place = Place::with_run();
    assert!(place.output(&reshard(&["--memory", "1K"])).status.success());
    assert_eq!(values(&place, "run"), values(&place, "new"));
}

#[test]
fn a_rule_for_nothing_is_a_warning_with_a_near_name() {
    let place = Place::with_run();
    let rule = [
        "reshard",
        "run",
        "new",
        "--mesh",
        "tp=2",
        "--shard",
        "*.q_porj.weight=tp",
        "--dry-run",
    ];
    let said = place.cairn(&rule);
    check!(said.split("----- stderr").nth(1).unwrap(), @"

    warning: no tensor is called `*.q_porj.weight`; did you mean `model.layers.0.q_proj.weight`?
    ");
}

#[test]
fn whole_tensors_become_a_hugging_face_folder() {
    let place = Place::with_run();
    check!(place.cairn(&["convert", "run", "hf", "--to", "hf"]), @"
    exit code 0
    ----- stdout
    wrote       a Hugging Face model to `hf`
    tensors     9
    files       1 file, 8.9 KiB
    memory      at most 384.0 MiB
    side files  config.json
    left out    values lr, step

    FILE               TENSORS     SIZE
    model.safetensors        9  8.9 KiB
    ----- stderr
    wrote 8.9 KiB in [SECONDS] s
    ");
    assert_eq!(std::fs::read(place.path("hf/config.json")).unwrap(), b"{}");
}

#[test]
fn a_large_model_is_split_and_chosen_by_name() {
    let place = Place::with_run();
    let convert = [
        "convert",
        "run",
        "hf",
        "--to",
        "hf",
        "--keys",
        "model.*",
        "--shard-size",
        "1K",
    ];
    check!(place.cairn(&convert), @"
    exit code 0
    ----- stdout
    wrote       a Hugging Face model to `hf`
    tensors     6
    files       2 files, 10.8 KiB
    memory      at most 384.0 MiB
    side files  config.json
    left out    3 tensors; values lr, step

    FILE                              TENSORS     SIZE
    model-00001-of-00002.safetensors        1  6.0 KiB
    model-00002-of-00002.safetensors        5  4.8 KiB
    ----- stderr
    wrote 10.8 KiB in [SECONDS] s
    ");
    let dry = [
        "convert",
        "run",
        "other",
        "--to",
        "hf",
        "--keys",
        "model.*",
        "--shard-size",
        "1K",
        "--dry-run",
    ];
    let (found, planned) = (place.json(&["inspect", "hf"]), place.json(&dry));
    assert_eq!(found["len_bytes"], planned["len_bytes"]);
    assert_eq!(
        found["files"].as_u64(),
        planned["files"].as_array().map(|files| files.len() as u64)
    );
    assert!(!place.path("other").exists());
}

#[test]
fn a_model_in_the_way_is_replaced_only_on_request() {
    let place = Place::with_model();
    check!(place.cairn(&["convert", "run", "hf", "--to", "hf"]), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: `file://[DIR]/hf` already holds model.safetensors

    hint: choose another place, or pass `--replace`
    ");
    let replace = [
        "convert",
        "run",
        "hf",
        "--to",
        "hf",
        "--shard-size",
        "1K",
        "--replace",
    ];
    assert!(place.output(&replace).status.success());
    assert!(!place.path("hf/model.safetensors").exists());
    check!(place.cairn(&["convert", "hf", "./hf", "--to", "hf", "--replace"]), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: `file://[DIR]/hf` is a part of what is read here, `file://[DIR]/hf`, which stays as it is

    hint: choose another place for the result
    ");
}
