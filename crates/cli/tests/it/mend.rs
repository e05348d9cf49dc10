//! `cairn scrub`, `cairn repair`, `cairn keygen`, `cairn sign` and `cairn verify --key`.

use crate::fixture::Place;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A run, and a copy of it.
fn twins() -> Place {
    let place = Place::with_run();
    let copied = Command::new("cp")
        .arg("-r")
        .args([place.path("run"), place.path("copy")])
        .status();
    assert!(copied.unwrap().success());
    place
}

fn damage(place: &Place) {
    let file = &place.files("run/step-00000010", ".safetensors")[0];
    let mut bytes = fs::read(file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file, bytes).unwrap();
}

fn code(place: &Place, args: &str) -> i32 {
    let args: Vec<&str> = args.split(' ').collect();
    place.output(&args).status.code().unwrap()
}

#[test]
fn what_a_scrub_finds_a_repair_mends() {
    let place = twins();
    let whole = place.json(&["scrub", "run", "--once"]);
    assert_eq!(whole["steps"], 2);
    assert_eq!(whole["files"], 8);
    assert_eq!(whole["damage"], serde_json::json!({}));
    damage(&place);
    let found = place.output(&["scrub", "run", "--once", "--rate", "1G", "--json"]);
    assert_eq!(found.status.code(), Some(3));
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert!(
        found["damage"]["10"][0]
            .as_str()
            .unwrap()
            .contains("is damaged: bytes 0..")
    );
    let planned = place.cairn(&["repair", "run:10", "--from", "copy", "--dry-run"]);
    assert!(
        planned.contains("would repair  step-00000010/"),
        "{planned}"
    );
    assert!(planned.contains("\n1 file to repair, "), "{planned}");
    assert_eq!(code(&place, "verify run:10 --read-data"), 3);
    assert_eq!(code(&place, "repair run:10 --from copy/step-00000010"), 0);
    assert_eq!(code(&place, "verify run --read-data"), 0);
    assert_eq!(code(&place, "repair run:10 --from copy:20"), 2);
    assert_eq!(code(&place, "repair run --from copy"), 2);
    place.save("other", 10, &[]);
    assert_eq!(code(&place, "repair run:10 --from other"), 1);
}

#[test]
fn a_scrub_that_waits_says_so() {
    let place = Place::with_run();
    let output = place.output(&["scrub", "run", "--for", "2s", "--pause", "1s"]);
    let notes = String::from_utf8_lossy(&output.stderr);
    let waits = "the next pass begins in 1 s; `--once` ends after one\n";
    assert!(notes.starts_with(waits), "{notes}");
}

#[test]
fn a_scrub_that_was_cut_short_says_where_it_goes_on() {
    let place = twins();
    let first = place.json(&["scrub", "run", "--for", "0s"]);
    assert!(first["finished"].is_null());
    assert_eq!(first["position"]["step"], 10);
    let rest = place.json(&["scrub", "run", "--once"]);
    assert_eq!(
        (&rest["steps"], &rest["started"]),
        (&serde_json::json!(2), &first["started"])
    );
    assert!(rest["finished"].is_string());
}

#[test]
fn a_sample_is_the_same_for_the_same_seed() {
    let place = twins();
    let read = |seed: &str| place.json(&["verify", "run", "--read-data=50%", "--seed", seed]);
    assert_eq!(read("7"), read("7"));
    assert_eq!(read("7")["seed"], 7);
    let read = place.json(&["verify", "run", "--read-data=50%"]);
    assert!(read["seed"].is_u64());
    assert!(place.json(&["verify", "run", "--read-data"])["seed"].is_null());
}

#[test]
fn keys_sign_and_their_public_halves_check() {
    let place = twins();
    let made = place.json(&["keygen", "keys/release"]);
    let mode = place
        .path("keys/release")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(code(&place, "keygen keys/release"), 2);
    assert_eq!(code(&place, "verify run:10 --key keys/release.pub"), 1);
    assert_eq!(
        place.json(&["sign", "run:10", "--key", "keys/release"])["public_key"],
        made["public_key"]
    );
    assert_eq!(code(&place, "verify run:10 --key keys/release.pub"), 0);
    assert_eq!(
        code(
            &place,
            &format!(
                "verify run:10 --key {}",
                made["public_key"].as_str().unwrap()
            )
        ),
        0
    );
    // Step 20 is not signed.
    assert_eq!(code(&place, "verify run --key keys/release.pub"), 1);
    // A secret key is no public one, and is not shown.
    let mistaken = place.cairn(&["verify", "run:10", "--key", "keys/release"]);
    assert!(
        mistaken.contains("exit code 2") && mistaken.contains("a secret key"),
        "{mistaken}"
    );
    assert!(
        !mistaken.contains(
            fs::read_to_string(place.path("keys/release"))
                .unwrap()
                .trim()
        )
    );
}

#[test]
fn with_a_key_required_nothing_else_is_read() {
    let place = Place::with_model();
    place.json(&["keygen", "release"]);
    place.json(&["sign", "run:10", "--key", "release"]);
    let required = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_cairn"))
            .args(args)
            .current_dir(place.path(""))
            .env("CAIRN_REQUIRE_KEY", "release.pub")
            .output()
            .unwrap()
    };
    assert_eq!(
        required(&["cat", "run:10", "model.norm.weight"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        required(&["convert", "run:10", "out", "--to", "hf"])
            .status
            .code(),
        Some(0)
    );
    for args in [
        &["cat", "run", "model.norm.weight"][..],
        &["cat", "run:20", "model.norm.weight"],
        &["stats", "hf"],
        &["verify", "run"],
        &["merge", "merge.yml", "out"],
        &["ema", "run", "out", "--decay", "0.5"],
    ] {
        let output = required(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    }
    damage(&place);
    assert_eq!(required(&["stats", "run:10"]).status.code(), Some(1));
}
