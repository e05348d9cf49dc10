//! `cairn ls` and `cairn verify`, with every state a step can have.

use crate::fixture::{Place, check};
use std::fs;

/// Step 30 lacks the part of a writer; step 40 lacks its commit only; a byte of step 20 is wrong.
fn battered() -> Place {
    let place = Place::with_run();
    for step in [30, 40] {
        place.save("run", step, &[]);
        fs::remove_file(place.path(&format!("run/step-000000{step}/COMMIT"))).unwrap();
    }
    let parts = place.files("run/step-00000030", "00002.part");
    fs::remove_file(&parts[0]).unwrap();
    flip(&place, 20);
    place
}

/// Changes a byte of the data that writer 1 wrote.
fn flip(place: &Place, step: u64) {
    let files = place.files(&format!("run/step-{step:08}"), "00001.safetensors");
    let mut bytes = fs::read(&files[0]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&files[0], bytes).unwrap();
}

fn cut(place: &Place, step: u64) {
    let files = place.files(&format!("run/step-{step:08}"), "00001.safetensors");
    let bytes = fs::read(&files[0]).unwrap();
    fs::write(&files[0], &bytes[..bytes.len() - 1]).unwrap();
}

#[test]
fn whole_steps_are_listed_newest_first() {
    check!(Place::with_run().cairn(&["ls", "run"]), @"
    exit code 0
    ----- stdout
    STEP  AGE  STATE         SIZE  WRITERS  TAGS          NOTE
      20  [AGE]  complete  22.4 KiB        4  latest, eval
      10  [AGE]  complete  22.4 KiB        4
    2 steps, 2 complete, 44.7 KiB
    ----- stderr
    ");
}

#[test]
fn the_tiers_that_have_a_step_are_told_and_uploads_finished() {
    let place = Place::with_run();
    let tiers = |place: &Place| {
        let found = place.json(&["ls", "tiers:run,durable"]);
        found["steps"][0]["tiers"].clone()
    };
    assert_eq!(tiers(&place), serde_json::json!(["fast"]));
    place.json(&["verify", "tiers:run,durable", "--finish"]);
    assert_eq!(tiers(&place), serde_json::json!(["fast", "durable"]));
    assert_eq!(place.json(&["ls", "durable"])["latest"], 20);
    let shown = place.cairn(&["ls", "tiers:run,durable:20"]);
    assert!(
        shown.contains("TIERS") && shown.contains("fast, durable"),
        "{shown}"
    );
    let inspected = place.json(&["inspect", "tiers:run,durable"]);
    assert_eq!(inspected["step"], 20);
}

#[test]
fn damaged_and_unfinished_steps_say_what_is_wrong() {
    let place = battered();
    cut(&place, 20);
    check!(place.cairn(&["ls", "run"]), @"
    exit code 0
    ----- stdout
    STEP  AGE  STATE           SIZE  WRITERS  TAGS    NOTE
      40  [AGE]  incomplete  21.5 KiB        4          attempt `[ATTEMPT]` has all parts but no COMMIT
      30  [AGE]  incomplete  21.0 KiB        4          attempt `[ATTEMPT]` has 3 of 4 parts, not those of writers 2
      20  [AGE]  damaged     22.4 KiB        4          `step-00000020/[ATTEMPT]/00001.safetensors` is damaged: it has 5247 bytes, 5248 were written
      10  [AGE]  complete    22.4 KiB        4  latest
    4 steps, 1 complete, 87.1 KiB
    ----- stderr
    ");
    let found = place.json(&["ls", "run"]);
    assert_eq!(found["latest"], 10);
    assert_eq!(found["steps"][0]["state"], "incomplete");
}

#[test]
fn the_structure_of_a_whole_run_is_checked() {
    check!(Place::with_run().cairn(&["verify", "run"]), @"
    exit code 0
    ----- stdout
    step 10  complete  4 files, 18.9 KiB, structure checked
    step 20  complete  4 files, 18.9 KiB, structure checked
    ----- stderr
    ");
}

#[test]
fn every_byte_is_read_on_request() {
    let place = Place::with_run();
    check!(place.cairn(&["verify", "run", "--read-data"]), @"
    exit code 0
    ----- stdout
    step 10  complete  4 files, 18.9 KiB, 18.9 KiB read and compared
    step 20  complete  4 files, 18.9 KiB, 18.9 KiB read and compared
    ----- stderr
    read 37.8 KiB in [SECONDS] s
    ");
    let found = place.json(&["verify", "run", "--read-data"]);
    assert_eq!(
        found["checked_bytes"],
        found["steps"][0]["len_bytes"].as_u64().unwrap() * 2
    );
}

#[test]
fn a_wrong_byte_is_found_and_named() {
    let place = Place::with_run();
    flip(&place, 20);
    check!(place.cairn(&["verify", "run/step-00000020"]), @"
    exit code 0
    ----- stdout
    step 20  complete  4 files, 18.9 KiB, structure checked
    ----- stderr
    ");
    check!(place.cairn(&["verify", "run/step-00000020", "--read-data"]), @"
    exit code 3
    ----- stdout
    step 20  damaged  4 files, 18.9 KiB, 18.9 KiB read and compared
                      `step-00000020/[ATTEMPT]/00001.safetensors` is damaged: bytes 0..5248 (tensor `model.layers.0.q_proj.weight`, `model.layers.1.q_proj.weight`, `model.norm.weight`, `lm_head.weight`) have CRC [CRC], written with CRC [CRC]
    ----- stderr
    read 18.9 KiB in [SECONDS] s
    ");
}

#[test]
fn unfinished_saves_are_finished_if_they_can_be() {
    let place = battered();
    check!(place.cairn(&["verify", "run"]), @"
    exit code 4
    ----- stdout
    step 10  complete    4 files, 18.9 KiB, structure checked
    step 20  complete    4 files, 18.9 KiB, structure checked
    step 30  incomplete  never committed
                         attempt `[ATTEMPT]` has 3 of 4 parts, not those of writers 2
    step 40  incomplete  never committed
                         attempt `[ATTEMPT]` has all parts but no COMMIT
    ----- stderr
    `--finish` commits saves that lack only their commit, `cairn prune --incomplete` deletes the rest
    ");
    check!(place.cairn(&["verify", "run", "--finish"]), @"
    exit code 4
    ----- stdout
    step 10  complete    4 files, 18.9 KiB, structure checked
    step 20  complete    4 files, 18.9 KiB, structure checked
    step 30  incomplete  never committed
                         attempt `[ATTEMPT]` has 3 of 4 parts, not those of writers 2
    step 40  complete    now committed, 4 files, 18.9 KiB, structure checked
    ----- stderr
    `cairn prune --incomplete` deletes what crashed saves left
    ");
    assert_eq!(
        place.json(&["verify", "run/step-00000040"])["steps"][0]["state"],
        "complete"
    );
}

#[test]
fn a_run_falls_back_to_its_last_whole_step_and_says_so() {
    let place = Place::with_run();
    cut(&place, 20);
    let said = place.cairn(&["inspect", "run"]);
    assert!(said.contains("step        10 (latest)"), "{said}");
    let warning = said.split("----- stderr").nth(1).unwrap();
    check!(warning, @"

    warning: passing over step 20: `step-00000020/[ATTEMPT]/00001.safetensors` is damaged: it has 5247 bytes, 5248 were written

    `--tree` lists every tensor, `--map NAME` draws who holds what of one
    ");
}

#[test]
fn models_have_a_structure_to_check() {
    let place = Place::with_model();
    check!(place.cairn(&["verify", "hf", "--read-data"]), @"
    exit code 0
    ----- stdout
    model  complete  1 file, 8.9 KiB, structure checked
    ----- stderr
    warning: this format stores no checksums: only its structure was checked
    ");
    let file = place.path("hf/model.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    check!(place.cairn(&["verify", "hf"]), @"
    exit code 3
    ----- stdout
    ----- stderr
    error: `model.safetensors` is not a valid safetensors file: the header describes 9120 bytes, the file has 9119

    hint: the file is damaged or incomplete: fetch or write it again
    ");
}
