//! `cairn plan`.

use crate::fixture::{Place, check};

#[test]
fn a_save_is_planned_file_by_file() {
    let place = Place::with_run();
    let plan = [
        "plan",
        "save",
        "run",
        "--mesh",
        "dp=2,tp=2",
        "--shard",
        "*.q_proj.*=tp,dp",
    ];
    check!(place.cairn(&plan), @"
    exit code 0
    ----- stdout
    mesh       dp=2,tp=2
    tensors    8
    files      4 files, 18.9 KiB
    balance    2.882 (largest share ÷ mean share)
    exchanged  0 B between ranks

    RANK  FILE               PIECES     SIZE
       0  00000.safetensors       2  4.1 KiB
       1  00001.safetensors       3  6.1 KiB
       2  00002.safetensors       2  4.1 KiB
       3  00003.safetensors       7  4.6 KiB
    ----- stderr
    ");
    assert_eq!(place.json(&plan)["exchanged_bytes"], 0);
}

#[test]
fn a_load_is_planned_rank_by_rank() {
    let place = Place::with_run();
    let plan = ["plan", "load", "run", "--mesh", "tp=3", "--shard", "*=tp"];
    check!(place.cairn(&plan), @"
    exit code 0
    ----- stdout
    mesh     tp=3
    tensors  9

    RANK   WANTED      READ  OVER-READ  FILES  READS    MEMORY
       0  1.1 KiB  18.9 KiB      17.60      4      4  20.7 KiB
       1  1.1 KiB  18.9 KiB      17.60      4      4  20.7 KiB
       2    792 B  13.8 KiB      17.78      3      3  15.2 KiB
    ----- stderr
    ");
    assert_eq!(
        place.json(&[&plan[..], &["--rank", "2"]].concat())["ranks"][0]["rank"],
        2
    );
}

#[test]
fn names_that_do_not_fit_are_listed() {
    let place = Place::with_model();
    let convert = ["convert", "run", "part", "--to", "hf", "--keys", "model.*"];
    assert!(place.output(&convert).status.success());
    check!(place.cairn(&["plan", "load", "run", "--mesh", "tp=2", "--like", "part", "--rank", "0"]), @"
    exit code 1
    ----- stdout
    mesh     tp=2
    tensors  6

    RANK   WANTED      READ  OVER-READ  FILES  READS    MEMORY
       0  2.8 KiB  18.9 KiB       6.80      4      4  21.7 KiB

    checkpoint and target do not fit: 3 unexpected names
      unexpected  `lm_head.weight`, `optimizer.exp_avg`, `optimizer.step`
    ----- stderr
    ");
    check!(place.cairn(&["plan", "load", "part", "--mesh", "tp=2", "--like", "run", "--rank", "0"]), @"
    exit code 1
    ----- stdout
    mesh     tp=2
    tensors  9

    RANK   WANTED     READ  OVER-READ  FILES  READS   MEMORY
       0  2.8 KiB  6.8 KiB       2.44      1      1  9.6 KiB

    checkpoint and target do not fit: 3 missing names
      missing     `lm_head.weight`
      missing     `optimizer.exp_avg`
      missing     `optimizer.step`
    ----- stderr
    ");
    let same = place.output(&["plan", "load", "hf", "--mesh", "tp=2", "--like", "run"]);
    assert_eq!(same.status.code(), Some(0));
}

#[test]
fn a_move_between_layouts_is_priced() {
    let place = Place::with_run();
    let plan = [
        "plan",
        "reshard",
        "run",
        "--mesh",
        "tp=2",
        "--shard",
        "*.q_proj.*=tp",
        "--to-mesh",
        "tp=2",
        "--to-shard",
        "*.q_proj.*=-,tp",
    ];
    check!(place.cairn(&plan), @"
    exit code 0
    ----- stdout
    mesh     tp=2 → tp=2
    tensors  8
    moved    192 B in 4 messages

    PATTERN                       COUNT  SOURCE        TARGET        COLLECTIVE  MOVED
    lm_head.weight                    1  bf16[64, 16]  bf16[64, 16]  local         0 B
    model.layers.#.experts            2  f32[4, 2, 6]  f32[4, 2, 6]  local         0 B
    model.layers.#.q_proj.weight      2  f32[8@tp, 6]  f32[8, 6@tp]  all-to-all  192 B
    model.norm.weight                 1  f32[8]        f32[8]        local         0 B
    optimizer.exp_avg                 1  f32[30]       f32[30]       local         0 B
    optimizer.step                    1  i64[]         i64[]         local         0 B
    ----- stderr
    ");
}
