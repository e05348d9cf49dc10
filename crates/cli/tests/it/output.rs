//! Where things are printed: JSON, colour, quiet, traces and closed pipes.

use crate::fixture::{Place, check};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn errors_are_json_when_data_would_be() {
    let place = Place::with_run();
    check!(place.cairn(&["cat", "run", "model.nrom.weight", "--json"]), @r#"
    exit code 2
    ----- stdout
    ----- stderr
    {
      "error": "there is no tensor `model.nrom.weight`",
      "causes": [],
      "hint": "did you mean `model.norm.weight`?"
    }
    "#);
    check!(place.cairn(&["inspect", "run", "--json", "--nonsense"]), @r#"
    exit code 2
    ----- stdout
    ----- stderr
    {
      "error": "unexpected argument '--nonsense' found",
      "causes": [],
      "hint": "`cairn help` lists every verb and option"
    }
    "#);
}

#[test]
fn colour_appears_only_when_asked_for_or_watched() {
    let place = Place::with_run();
    let stdout = |args: &[&str]| String::from_utf8(place.output(args).stdout).unwrap();
    assert!(!stdout(&["ls", "run"]).contains('\x1b'));
    assert!(stdout(&["ls", "run", "--color", "always"]).contains("\x1b[32mcomplete\x1b[0m"));
}

#[test]
fn quiet_leaves_data_and_errors_only() {
    let place = Place::with_run();
    let output = place.output(&["reshard", "run", "new", "--mesh", "tp=2", "--quiet"]);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    assert!(!output.stdout.is_empty());
}

#[test]
fn a_trace_has_one_json_object_a_line() {
    let place = Place::with_run();
    let args = [
        "reshard",
        "run",
        "new",
        "--mesh",
        "tp=2",
        "--trace",
        "logs/trace.jsonl",
    ];
    assert!(place.output(&args).status.success());
    let trace = std::fs::read_to_string(place.path("logs/trace.jsonl")).unwrap();
    assert!(!trace.is_empty());
    for line in trace.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event["fields"]["message"].is_string());
    }
}

#[test]
fn verbose_tells_what_happens() {
    let place = Place::with_run();
    let output = place.output(&["cat", "run", "model.norm.weight", "--verbose"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("loaded"));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let place = Place::with_run();
    let mut child = Command::new(env!("CARGO_BIN_EXE_cairn"))
        .args(["cat", "run", "model.embed.weight", "--full"])
        .current_dir(place.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), stderr.as_str()),
        (Some(0), "")
    );
}

/// The names of all fields, but not of those that are the user's own.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    const OWN: [&str; 5] = ["values", "aliases", "assets", "keep", "unusable"];
    match value {
        Value::Array(list) => list.iter().for_each(|value| fields(value, found)),
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                if !OWN.contains(&name.as_str()) {
                    fields(value, found);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_of_every_verb_is_documented() {
    let place = Place::with_model();
    let mut found = BTreeSet::new();
    let verbs = [
        "inspect run --tree",
        "inspect run --map optimizer.exp_avg",
        "inspect hf",
        "ls run",
        "verify run --read-data",
        "stats run --hist",
        "report hf",
        "reshard run new --mesh tp=2 --dry-run",
        "convert run out --to hf --dry-run",
        "ema run out --decay 0.5 --dry-run",
        "edit run --delete model.norm.weight --plan",
        "plan save run --mesh tp=2",
        "plan load run --mesh tp=2",
        "plan reshard run --mesh tp=2 --to-mesh tp=1",
        "cat run model.norm.weight",
        "prune run --keep-last 1 --dry-run",
        "tag run",
        "scrub run --once",
        "repair run:10 --from run",
        "keygen key",
        "sign run --key key",
    ];
    for verb in verbs {
        let args: Vec<&str> = verb.split(' ').collect();
        fields(&place.json(&args), &mut found);
    }
    let documentation = include_str!("../../../../docs/cli.md");
    for field in found {
        assert!(documentation.contains(&format!("`{field}`")), "{field}");
    }
}
