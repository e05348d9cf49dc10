//! Names that would take over a terminal: of tensors, values, side files, folders, attempts and files, in configs and in errors.
//!
//! Whatever a verb prints, to stdout or stderr, as text or as JSON, there is no control character in it, and no line that a name made.

use crate::fixture::{Place, floats};
use crate::verbs::verbs;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;

/// Sets the title, colours, clears, turns around, rings, and begins a line of its own.
const HOSTILE: &str = "\u{1b}]0;pwned\u{7}\u{1b}[31m\u{9b}2J\r\u{7f}\u{202e}w\nFORGED: line";

/// The same as the name of a file, short.
const FILE: &str = "f\u{1b}[31m\r\nFORGED";

/// Lines in which `$` is the hostile name and `@` the hostile file name.
const LINES: &[&str] = &[
    "inspect hf",
    "inspect hf --tree",
    "inspect run --map $",
    "inspect run --map $x",
    "inspect @",
    "inspect @.safetensors",
    "inspect broken",
    "inspect torch.pt",
    "ls run",
    "log run",
    "ls @",
    "cat hf $",
    "cat hf $x",
    "cat hf $[9,9,9]",
    "stats hf",
    "diff hf run",
    "diff hf hf2",
    "report hf --out report.html",
    "verify run",
    "verify hf",
    "doctor @",
    "reshard run new --mesh tp=2",
    "reshard run new --mesh tp=2 --shard $=tp",
    "convert hf @ --to hf",
    "convert hf @ --to hf",
    "convert hf one.safetensors --to safetensors --drop $",
    "convert hf one.safetensors --to safetensors --keys $x",
    "convert torch.pt two.pt --to torch",
    "convert hf dcp --to dcp",
    "edit hf --rename $=n --out edited",
    "edit hf $[0]=nonsense --out edited2",
    "ema run out --decay 0.5 --step 7",
    "merge merge.yml merged",
    "merge bad.yml merged2",
    "tokenize @ out.tokens --tokenizer bytes",
    "tokenize @x out2.tokens --tokenizer @",
    "sim --stages 2 --micro-batches 4 --schedule $",
    "train bad.toml",
    "train run.toml --set $=1",
    "train run.toml --dry-run --set checkpoints.folder=\"@\"",
    "generate hf --tokens 1 --max-tokens 2",
    "generate @ --tokens 1 --max-tokens 2",
    "plan save run --mesh tp=2",
    "plan load run --mesh tp=2",
    "plan reshard run --mesh tp=2 --to-mesh tp=1",
    "recipe explain r.recipe --sources hf",
    "recipe explain bad.recipe --sources hf",
    "prune run --keep-last 1 --dry-run",
    "prune run --incomplete 0s --yes",
    "tag run:20 $",
    "tag run",
    "scrub run --once",
    "repair run:10 --from hf",
    "keygen @/key",
    "sign run --key @",
    "compact run --dry-run",
    "demo --gb $ --dir @",
    "completions $",
    "keeper status @",
    "$ $",
    "inspect hf --trace @/trace --verbose",
];

fn place() -> Place {
    let place = Place::with_run();
    for model in ["hf", "hf2"] {
        fs::create_dir(place.path(model)).unwrap();
        let values = floats(&[1.0, if model == "hf" { 2.0 } else { 3.0 }]);
        let tensors = [
            (HOSTILE, "F32", &[2][..], values.clone()),
            ("plain", "F32", &[2], values),
        ];
        place.safetensors(&format!("{model}/model.safetensors"), &tensors);
        let config = json!({"model_type": HOSTILE, "architectures": [HOSTILE], HOSTILE: HOSTILE});
        fs::write(
            place.path(&format!("{model}/config.json")),
            config.to_string(),
        )
        .unwrap();
        fs::write(place.path(&format!("{model}/{FILE}.json")), "{}").unwrap();
    }
    let values = [(HOSTILE, "F32", &[2][..], floats(&[1.0, 2.0]))];
    place.safetensors(&format!("{FILE}.safetensors"), &values);
    fs::create_dir(place.path("broken")).unwrap();
    let index = json!({"weight_map": {HOSTILE: format!("{FILE}.safetensors")}});
    fs::write(
        place.path("broken/model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    fs::write(place.path(FILE), HOSTILE).unwrap();
    let attempt = place.path(&format!("run/step-00000030/{FILE}"));
    fs::create_dir_all(&attempt).unwrap();
    fs::write(
        attempt.join("FAILED"),
        json!({"writer": 0, "reason": HOSTILE}).to_string(),
    )
    .unwrap();
    fs::write(attempt.join("00000.part"), HOSTILE).unwrap();
    fs::write(
        place.path(&format!("run/step-00000020/{FILE}.tag")),
        HOSTILE,
    )
    .unwrap();
    fs::write(place.path("r.recipe"), "plain -> norm\n").unwrap();
    fs::write(
        place.path("bad.recipe"),
        format!("plain, {HOSTILE} -> \u{1b}[31m, axis=0\n"),
    )
    .unwrap();
    let merge = "merge_method: linear\nmodels:\n  - model: hf\n    parameters: {weight: 1.0}\n";
    fs::write(place.path("merge.yml"), merge).unwrap();
    let bad =
        "merge_method: \"\\e[31mlinear\"\nmodels:\n  - model: \"no\\e]0;x\\a\"\n\"\\e[2J\": 1\n";
    fs::write(place.path("bad.yml"), bad).unwrap();
    let toml = "seed = \"\\u001b[31m\"\n\"\\u001b[2J\" = 1\n[model]\npath = \"\\u001b[31m\"\n";
    fs::write(place.path("bad.toml"), toml).unwrap();
    place.write_config();
    let saved = ["convert", "hf", "torch.pt", "--to", "torch"];
    assert!(place.output(&saved).status.success());
    let saved = ["convert", "hf", "run", "--to", "cairn", "--step", "40"];
    assert!(place.output(&saved).status.success());
    place
}

/// What a terminal would obey, or a line that a name made.
fn harm(text: &str) -> Option<String> {
    let ours = ["0", "1", "2", "31", "32", "33", "36"];
    let mut rest = text.to_string();
    for code in ours {
        // Colours are asked for in some of the runs; the name has one of them, before `\u{9b}`.
        rest = rest.replace(&format!("\u{1b}[{code}m"), "");
    }
    let acts =
        |char: &char| char.is_control() && !matches!(char, '\n' | '\t') || *char == '\u{202e}';
    if let Some(char) = rest.chars().find(acts) {
        return Some(format!("{char:?}"));
    }
    let forged = rest.lines().find(|line| line.starts_with("FORGED"));
    forged.map(str::to_string)
}

#[test]
fn no_verb_prints_a_control_character_that_somebody_else_wrote() {
    let place = place();
    let mut covered = BTreeSet::from(["help".to_string()]);
    for line in LINES {
        for how in [&[][..], &["--json"], &["--color", "always"]] {
            let args: Vec<String> = line
                .split(' ')
                .map(|arg| arg.replace('$', HOSTILE).replace('@', FILE))
                .collect();
            let args: Vec<&str> = args
                .iter()
                .map(String::as_str)
                .chain(how.iter().copied())
                .collect();
            let output = place.output(&args);
            for bytes in [&output.stdout, &output.stderr] {
                let text = String::from_utf8_lossy(bytes);
                assert_eq!(harm(&text), None, "{line} {how:?}: {text:?}");
                let colour = text.contains('\u{1b}');
                assert!(
                    !colour || how.contains(&"always"),
                    "{line} {how:?}: {text:?}"
                );
                assert!(!text.contains("panicked"), "{line} {how:?}: {text}");
            }
        }
        covered.insert(line.split(' ').next().unwrap_or_default().to_string());
    }
    let missing: Vec<String> = verbs(&place).difference(&covered).cloned().collect();
    assert!(missing.is_empty(), "no line for {missing:?}");
}
