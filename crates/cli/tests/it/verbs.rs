//! Promises that every verb keeps: one JSON document with `--json`, and the exit codes of `docs/cli.md`.

use crate::fixture::{Place, floats};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// A line for every verb, in a place with the runs `run` and `trained`, the models `hf` and `plain`, and files for recipes, merges and training.
const LINES: &[&str] = &[
    "inspect run",
    "inspect run --map model.norm.weight",
    "ls run",
    "log run",
    "cat run model.norm.weight",
    "stats run",
    "diff run run",
    "report hf",
    "verify run",
    "doctor run",
    "reshard run new --mesh tp=2 --dry-run",
    "convert run out --to hf --dry-run",
    "edit hf --rename model.norm.weight=norm --out edited --plan",
    "ema run out --decay 0.5 --dry-run",
    "merge merge.yml merged --plan",
    "tokenize merge.yml out.tokens --tokenizer bytes",
    "sim --stages 2 --micro-batches 4",
    "train run.toml --dry-run",
    "generate trained --tokens 1 --max-tokens 2",
    "plan save run --mesh tp=2",
    "plan load run --mesh tp=2",
    "plan reshard run --mesh tp=2 --to-mesh tp=1",
    "recipe explain r.recipe --sources run",
    "prune run --keep-last 1 --dry-run",
    "tag run",
    "scrub run --once",
    "repair run:10 --from run",
    "keygen key",
    "sign run --key key",
    "compact run --dry-run",
    "demo --gb 0.001 --steps 20 --dir demo",
    "completions bash",
];

fn place() -> Place {
    let place = Place::with_model();
    fs::write(place.path("r.recipe"), "model.norm.weight -> norm\n").unwrap();
    fs::create_dir(place.path("plain")).unwrap();
    let tensor = ("w", "F32", &[2][..], floats(&[1.0, 2.0]));
    place.safetensors("plain/model.safetensors", &[tensor]);
    fs::write(place.path("plain/config.json"), "{}").unwrap();
    let merge = "merge_method: linear\nmodels:\n  - model: plain\n    parameters: {weight: 1.0}\n";
    fs::write(place.path("merge.yml"), merge).unwrap();
    place.write_config();
    let trained = "train run.toml --quiet --set checkpoints.folder=\"trained\"";
    let trained = place.output(&trained.split(' ').collect::<Vec<_>>());
    assert!(trained.status.success());
    place
}

/// The verbs that `cairn --help` lists.
fn verbs(place: &Place) -> BTreeSet<String> {
    let help = String::from_utf8(place.output(&["--help"]).stdout).unwrap();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let names = commands
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_string).collect()
}

#[test]
fn every_verb_prints_one_json_document() {
    let place = place();
    // A keeper serves until it is stopped: `keeper.rs` has its documents.
    let mut covered = BTreeSet::from(["help", "keeper"].map(str::to_string));
    for line in LINES {
        let args: Vec<&str> = line.split(' ').chain(["--json"]).collect();
        let output = place.output(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        let document: Result<Value, _> = serde_json::from_slice(&output.stdout);
        assert!(
            document.is_ok_and(|document| document.is_object()),
            "{line}"
        );
        covered.insert(args[0].to_string());
    }
    let missing: Vec<String> = verbs(&place).difference(&covered).cloned().collect();
    assert!(missing.is_empty(), "no line for {missing:?}");
}

#[test]
fn every_verb_fails_with_one_json_document() {
    let place = Place::empty();
    for line in LINES {
        // Nothing that is named exists, and a shell called `run` does not either.
        let args: Vec<&str> = line.split(' ').chain(["--json"]).collect();
        let args = match args[0] {
            "demo" => vec!["demo", "--gb", "none", "--json"],
            "sim" => vec!["sim", "--stages", "none", "--json"],
            "completions" => vec!["completions", "none", "--json"],
            "keygen" => vec!["keygen", "", "--json"],
            _ => args,
        };
        let output = place.output(&args);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{line}"
        );
        let error: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert!(
            error["error"].is_string() && error["causes"].is_array(),
            "{line}: {error}"
        );
        assert!(error.get("hint").is_some(), "{line}: {error}");
    }
}

#[test]
fn warnings_are_json_where_data_is() {
    let place = Place::with_run();
    fs::write(place.path("run/step-00000020/COMMIT"), "damaged").unwrap();
    let output = place.output(&["inspect", "run", "--json"]);
    assert!(output.status.success());
    let warning: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(
        warning["warning"]
            .as_str()
            .unwrap()
            .starts_with("passing over step 20")
    );
}

#[test]
fn exit_codes_say_what_the_documentation_says() {
    let place = Place::with_run();
    let code = |args: &str| {
        let args: Vec<&str> = args.split(' ').collect();
        place.output(&args).status.code().unwrap()
    };
    assert_eq!(code("diff run:10 run:10"), 0);
    place.safetensors("a.safetensors", &[("w", "F32", &[1], floats(&[1.0]))]);
    place.safetensors("b.safetensors", &[("w", "F32", &[1], floats(&[2.0]))]);
    assert_eq!(code("diff a.safetensors b.safetensors"), 1);
    // A refusal: nobody says yes.
    assert_eq!(code("prune run --keep-last 1"), 1);
    assert_eq!(code("inspect"), 2);
    assert_eq!(code("inspect nowhere"), 2);
    let file = &place.files("run/step-00000010", ".safetensors")[0];
    let mut bytes = fs::read(file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file, bytes).unwrap();
    assert_eq!(code("verify run:10 --read-data"), 3);
    fs::remove_file(place.path("run/step-00000020/COMMIT")).unwrap();
    assert_eq!(code("inspect run:20"), 4);
    let documentation = include_str!("../../../../docs/cli.md");
    for code in 0..=4 {
        assert!(documentation.contains(&format!("\n| {code} | ")));
    }
}
