//! What a command reads stays as it is, and so does what it is to replace, until all of the new is on disk.

use crate::fixture::{Place, floats};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

/// The bytes of every file of a folder, by name.
fn files(place: &Place, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let name = |path: &std::path::Path| path.display().to_string();
    let found = place.files(folder, "").into_iter();
    found
        .map(|path| (name(&path), fs::read(&path).unwrap()))
        .collect()
}

/// The models `a` and `b`, a merge of them, the link `link` to `a`, and the run `run`.
fn place() -> Place {
    let place = Place::with_run();
    for (name, value) in [("a", 1.0), ("b", 3.0)] {
        fs::create_dir_all(place.path(name)).unwrap();
        let tensor = ("w", "F32", &[4096][..], floats(&[value; 4096]));
        place.safetensors(&format!("{name}/model.safetensors"), &[tensor]);
        let config = json!({"model_type": "llama", "of": name});
        fs::write(
            place.path(&format!("{name}/config.json")),
            config.to_string(),
        )
        .unwrap();
    }
    let merge = "merge_method: linear\nmodels:\n  - model: a\n    parameters: {weight: 1.0}\n  - model: b\n    parameters: {weight: 1.0}\n";
    fs::write(place.path("merge.yml"), merge).unwrap();
    symlink(place.path("a"), place.path("link")).unwrap();
    place
}

fn run(place: &Place, command: &str) -> Output {
    place.output(&command.split(' ').collect::<Vec<_>>())
}

/// The command must end with exit code 1 and these words, and change nothing.
fn refused(place: &Place, command: &str, words: &str) {
    let before = files(place, "");
    let output = run(place, command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{command}: {said}");
    assert!(said.contains(words), "{command}: {said}");
    assert!(said.contains("hint: "), "{command}: {said}");
    assert!(files(place, "") == before, "{command} changed something");
}

#[test]
fn a_merge_into_one_of_its_models_changes_nothing() {
    let place = place();
    for target in ["a", "./b/../a", "link", "b", "a/inside"] {
        for how in ["", " --replace", " --resume", " --plan"] {
            let command = format!("merge merge.yml {target}{how}");
            refused(&place, &command, "a part of what is read here");
        }
    }
}

#[test]
fn a_merge_does_not_overwrite_files_of_a_folder_without_safetensors() {
    let place = place();
    fs::create_dir(place.path("old")).unwrap();
    for name in ["pytorch_model.bin", "README.md", "config.json"] {
        fs::write(place.path(&format!("old/{name}")), "mine").unwrap();
    }
    refused(&place, "merge merge.yml old", "README.md");
    refused(&place, "convert a old --to hf", "config.json");
    let replaced = run(&place, "merge merge.yml old --replace");
    assert!(replaced.status.success(), "{replaced:?}");
    assert!(!place.path("old/pytorch_model.bin").exists());
    assert_ne!(fs::read(place.path("old/README.md")).unwrap(), b"mine");
}

#[test]
fn a_merge_that_cannot_be_written_leaves_the_model_it_was_to_replace() {
    let place = place();
    let first = run(&place, "merge merge.yml out");
    assert!(first.status.success(), "{first:?}");
    let before = files(&place, "out");
    let other = fs::read_to_string(place.path("merge.yml")).unwrap();
    let other = other.replace("linear", "linear\nparameters: {normalize: false}");
    fs::write(place.path("merge.yml"), other).unwrap();
    // Files end at 8 KiB: the config fits, the weights do not.
    let script = "ulimit -f 16; exec \"$0\" merge merge.yml out --replace";
    let killed = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_cairn")])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    assert!(!killed.status.success(), "{killed:?}");
    let mut after = files(&place, "out");
    after.retain(|name, _| !name.contains(".cairn-convert"));
    assert!(after == before, "the old model was touched");
    let again = run(&place, "merge merge.yml out --replace");
    assert!(again.status.success(), "{again:?}");
    assert!(files(&place, "out") != before);
    assert!(!place.path("out/.cairn-convert").exists());
}

#[test]
fn a_conversion_into_its_source_changes_nothing_whatever_the_source_is_called() {
    let place = place();
    fs::create_dir(place.path("a/sub")).unwrap();
    symlink(
        place.path("a/model.safetensors"),
        place.path("file.safetensors"),
    )
    .unwrap();
    let words = "a part of what is read here";
    for command in [
        "convert a a/model.safetensors --to safetensors --dtype f16 --replace",
        "convert a link/model.safetensors --to safetensors --dtype f16 --replace",
        "convert a file.safetensors --to safetensors --dtype f16 --replace",
        "convert a a/sub/.. --to hf --replace",
        "convert link a --to hf --replace",
        "convert a/model.safetensors a --to hf --replace",
        "convert a a --to cairn",
        "convert a a/sub --to dcp",
        "convert run:20 run/step-00000020 --to hf",
        "convert run:20 run --to cairn --replace",
        "reshard run:20 run --mesh tp=2 --replace",
        "edit a --rename w=v --out link",
        "ema run:10 run:20 run/step-00000010 --decay 0.5 --to hf",
        "ema run:10 run:20 run --decay 0.5 --to cairn --step 10 --replace",
    ] {
        refused(&place, command, words);
    }
    // A file beside the one that is read is another file.
    let beside = run(&place, "convert a/model.safetensors a/half.pt --to torch");
    assert!(beside.status.success(), "{beside:?}");
}

#[test]
fn a_model_is_not_written_into_a_run() {
    let place = place();
    let words = "no place for a model";
    for command in [
        "convert run run --to hf",
        "convert run:20 run/step-00000010 --to hf",
        "convert a run/step-00000010/x.safetensors --to safetensors",
        "convert a run --to dcp --plan",
        "merge merge.yml run",
        "edit a --rename w=v --out run/step-00000020",
    ] {
        refused(&place, command, words);
    }
    // Steps go there, of course, and models beside runs.
    for command in [
        "convert a run --to cairn --step 30",
        "reshard run:20 run --mesh tp=2 --step 40",
        "convert run:20 models/step-00000020 --to hf",
        "convert run:10 models/step-00000010 --to hf",
    ] {
        let output = run(&place, command);
        assert!(output.status.success(), "{command}: {output:?}");
    }
}

#[test]
fn an_edit_does_not_speak_of_an_option_that_it_does_not_have() {
    let place = place();
    let output = run(&place, "edit a --rename w=v --out b");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("--out") && !said.contains("--replace"),
        "{said}"
    );
}

#[test]
fn side_files_that_are_there_already_are_in_nobodys_way() {
    let place = place();
    fs::create_dir(place.path("out")).unwrap();
    fs::copy(place.path("a/config.json"), place.path("out/config.json")).unwrap();
    let output = run(&place, "convert a out --to hf");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(files(&place, "out").len(), 2);
}
