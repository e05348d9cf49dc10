//! `cairn convert`: every format, and conversions that are cut short.

use crate::fixture::{Place, check};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The bytes of every file of a folder, by name.
fn files(place: &Place, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let root = place.path(folder);
    let name = |path: &std::path::Path| path.strip_prefix(&root).unwrap().display().to_string();
    let found = place.files(folder, "").into_iter();
    found
        .map(|path| (name(&path), std::fs::read(&path).unwrap()))
        .collect()
}

fn done(place: &Place, command: &str) {
    let args: Vec<&str> = command.split(' ').collect();
    let output = place.output(&args);
    assert!(output.status.success(), "{command}: {output:?}");
}

#[test]
fn a_plan_tells_bytes_memory_and_time_and_writes_nothing() {
    let place = Place::with_run();
    check!(place.cairn(&["convert", "run", "new", "--to", "cairn", "--step", "7", "--plan"]), @"
    exit code 0
    ----- stdout
    would write  step 7 of `new`
    tensors      9
    files        1 file, 6.9 KiB
    reads        4.9 KiB
    memory       at most 384.0 MiB
    time         about 0.0 s, if the disk moves 1.0 GiB/s
    side files   config.json

    FILE               TENSORS     SIZE
    00000.safetensors        8  6.9 KiB
    ----- stderr
    ");
    assert!(!place.path("new").exists());
}

#[test]
fn a_model_goes_through_every_format_and_comes_back_unchanged() {
    let place = Place::with_model();
    done(&place, "convert hf new --to cairn --step 3");
    done(
        &place,
        "reshard new sharded --mesh tp=2 --shard model.embed.weight=-,tp --step 4",
    );
    done(&place, "convert sharded torch --to dcp");
    done(&place, "convert torch one.safetensors --to safetensors");
    done(&place, "convert one.safetensors back --to hf");
    std::fs::copy(place.path("hf/config.json"), place.path("back/config.json")).unwrap();
    assert_eq!(files(&place, "hf"), files(&place, "back"));
}

#[test]
fn one_file_is_replaced_only_on_request_and_never_by_itself() {
    let place = Place::with_run();
    let convert = ["convert", "run", "one.safetensors", "--to", "safetensors"];
    assert!(place.output(&convert).status.success());
    check!(place.cairn(&convert), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: `file://[DIR]` already holds one.safetensors

    hint: choose another place, or pass `--replace`
    ");
    done(
        &place,
        "convert run one.safetensors --to safetensors --keys model.norm.* --replace",
    );
    let found = place.json(&["inspect", "one.safetensors", "--tree"]);
    assert_eq!(found["tree"].as_array().unwrap().len(), 1);
    let itself = [
        "convert",
        "one.safetensors",
        "./one.safetensors",
        "--to",
        "safetensors",
        "--replace",
    ];
    assert_eq!(place.output(&itself).status.code(), Some(1));
}

#[test]
fn floats_are_cast_and_the_rest_stays() {
    let place = Place::with_run();
    done(
        &place,
        "convert run cast --to hf --dtype f16 --drop model.layers.*",
    );
    let tree = place.json(&["inspect", "cast", "--tree"]);
    let types = tree["tree"].as_array().unwrap().iter().map(|tensor| {
        let text = |key: &str| tensor[key].as_str().unwrap().to_string();
        (text("name"), text("dtype"))
    });
    let types: BTreeMap<String, String> = types.collect();
    assert_eq!(types["model.norm.weight"], "f16");
    assert_eq!(types["optimizer.step"], "i64");
    let values = |path: &str| place.json(&["cat", path, "optimizer.exp_avg"])["values"].clone();
    assert_eq!(values("run"), values("cast"));
    let refused = place.output(&["convert", "run", "x", "--to", "hf", "--dtype", "i32"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// Leaves what a conversion of another source would.
fn leave_unfinished(place: &Place, folder: &str) {
    let staging = place.path(folder).join(".cairn-convert");
    std::fs::create_dir_all(&staging).unwrap();
    let journal = r#"{"version": 2, "identity": "other", "phase": "writing", "complete": [], "replaces": [], "attempt": null}"#;
    std::fs::write(staging.join("journal.json"), journal).unwrap();
    std::fs::write(staging.join("model.safetensors"), "half").unwrap();
}

#[test]
fn an_unfinished_conversion_is_neither_overwritten_nor_continued_with_something_else() {
    let place = Place::with_run();
    leave_unfinished(&place, "hf");
    check!(place.cairn(&["convert", "run", "hf", "--to", "hf"]), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: `file://[DIR]/hf` holds an unfinished conversion, in `.cairn-convert`

    hint: go on with it with `--resume`, or start over with `--replace`
    ");
    check!(place.cairn(&["convert", "run", "hf", "--to", "hf", "--resume"]), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: cannot go on with the unfinished conversion in `file://[DIR]/hf`: the source or the options have changed since

    hint: give the same source and options, or start over with `--replace`
    ");
    done(&place, "convert run hf --to hf --replace");
    assert!(!place.path("hf/.cairn-convert").exists());
    done(&place, "convert run fresh --to hf --resume");
    assert_eq!(files(&place, "hf"), files(&place, "fresh"));
}

/// A model of 48 tensors of 256 KiB.
fn put_model(place: &Place) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for index in 0..48_u8 {
        let begin = data.len();
        data.extend((0..1 << 18).map(|at: u32| at.to_le_bytes()[1] ^ index));
        let entry = serde_json::json!({"dtype": "U8", "shape": [1 << 18], "data_offsets": [begin, data.len()]});
        header.insert(format!("layer.{index:02}"), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    std::fs::create_dir_all(place.path("model")).unwrap();
    std::fs::write(place.path("model/model.safetensors"), file).unwrap();
}

/// Starts a conversion and kills it after `life`; whether it was done before that.
fn killed_after(place: &Place, args: &[&str], life: Duration) -> bool {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cairn"))
        .args(args)
        .current_dir(place.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap().success()
}

#[test]
fn killed_at_any_moment_a_conversion_goes_on_and_ends_with_the_same_bytes() {
    let place = Place::empty();
    put_model(&place);
    let options = "--to hf --shard-size 600K --replace";
    let start = Instant::now();
    done(&place, &format!("convert model reference {options}"));
    let whole = start.elapsed();
    let reference = files(&place, "reference");
    for turn in 0..8 {
        let target = format!("out-{turn}");
        let command = format!("convert model {target} {options} --resume");
        let args: Vec<&str> = command.split(' ').collect();
        // An old model has to survive until the new one is there.
        done(
            &place,
            &format!("convert model {target} --to hf --keys layer.0*"),
        );
        let old = files(&place, &target);
        killed_after(&place, &args, whole * (2 * turn + 1) / 16);
        let opened = place.output(&["inspect", &target]).status;
        let mut found = files(&place, &target);
        found.retain(|name, _| !name.starts_with('.'));
        if opened.success() {
            let index = "model.safetensors.index.json";
            let whole = reference.iter().filter(|(name, _)| *name != index);
            let is_new = whole
                .clone()
                .all(|(name, bytes)| found.get(name) == Some(bytes));
            assert!(found == old || is_new, "turn {turn}: {:?}", found.keys());
        }
        done(&place, &command);
        assert!(files(&place, &target) == reference, "turn {turn}");
    }
}
