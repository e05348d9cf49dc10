//! What `--help` says.

use crate::fixture::{Place, check};
use std::process::Command;

#[test]
fn the_top_level_help_lists_the_verbs() {
    let help = Place::empty().cairn(&["--help"]);
    let (verbs, _) = help.split_once("\n\nOptions:\n").unwrap();
    check!(verbs.to_string(), @"
    exit code 0
    ----- stdout
    Inspects, checks and rearranges the checkpoints of large models

    Usage: cairn [OPTIONS] <COMMAND>

    Commands:
      inspect      Show what a checkpoint or model contains
      ls           List the steps of a run and the state of each
      log          Draw what was saved after what, and where the run went back
      cat          Print values of a tensor, reading only their bytes
      stats        Show what the values of tensors are like
      diff         Tell whether two checkpoints or models are the same, and how far apart
      report       Show where the time of saves went, or what the values of each layer are like
      verify       Check that what is stored is what was saved
      scrub        Read a run again and again, slowly, to find damage early
      repair       Mend a damaged step from a copy of it
      keygen       Make a pair of keys, to sign steps and to check signatures
      sign         Sign a step, so that others can tell who made it
      doctor       Try out what a store can do, and tell what follows from it
      reshard      Write a checkpoint or model again, laid out for another mesh
      convert      Write a checkpoint or model in another format
      edit         Change values or names of tensors, as a new version
      ema          Average the weights of stored steps
      merge        Merge models into one, by a mergekit config
      tokenize     Turn text into a file of tokens to train on
      plan         Show what a save, a load or a move would do
      sim          Show when each stage of a pipeline would work, and when it would wait
      recipe       Show what a recipe makes of the tensors of a checkpoint
      prune        Delete old steps of a run
      tag          Give a step a tag, which keeps it for good
      compact      Write a step that refers to others anew, so that it stands alone
      train        Train a model, from wherever its run is
      keeper       Keep the memory of captures, so that they survive a trainer that dies
      generate     Go on with a text, as a model would
      demo         Watch a model train, be killed, and go on elsewhere, on this machine
      completions  Print the completions of a shell
      help         Print this message or the help of the given subcommand(s)
    ");
}

#[test]
fn the_top_level_help_lists_options_exit_codes_and_examples() {
    let help = Place::empty().cairn(&["--help"]);
    let (_, rest) = help.split_once("\n\nOptions:\n").unwrap();
    check!(rest.to_string(), @"
      -h, --help     Print help
      -V, --version  Print version

    Output:
          --json          Print one JSON object instead of text; `docs/cli.md` names its fields
      -q, --quiet         Hide notes, warnings and progress
      -v, --verbose       Tell on stderr what is being done
          --no-progress   Hide progress bars
          --color <WHEN>  When to use colour [default: auto] [possible values: auto, always, never]
          --trace <FILE>  When done, write everything that happened to FILE, one JSON object a line

    A PATH is a run (its newest whole step is used), a step such as runs/7b/step-00012000,
    a Hugging Face, torch distributed (DCP) or Megatron folder,
    or one .safetensors, .pt or .bin file; in a folder or a bucket (s3://…, gs://…, az://…).

    Exit codes:
      0  done, or yes
      1  refused, or the two sides differ
      2  wrong usage, or an error
      3  damaged
      4  incomplete: never committed

    Examples:
      cairn inspect runs/7b                     what the newest checkpoint contains
      cairn ls runs/7b                          every step, and whether it is whole
      cairn verify runs/7b --read-data=10%      check a tenth of all bytes
      cairn cat runs/7b 'lm_head.weight[0, :8]' a few values, reading only their bytes
      cairn stats runs/7b --hist                what all values are like
      cairn diff runs/7b:11000 runs/7b:12000    what changed from one step to another
    ----- stderr
    ");
}

#[test]
fn every_verb_has_examples_in_its_help() {
    let place = Place::empty();
    let verbs = [
        "inspect",
        "ls",
        "verify",
        "scrub",
        "repair",
        "keygen",
        "sign",
        "doctor",
        "diff",
        "stats",
        "ema",
        "merge",
        "tokenize",
        "recipe explain",
        "reshard",
        "convert",
        "edit",
        "plan save",
        "plan load",
        "plan reshard",
        "cat",
        "report",
        "prune",
        "tag",
        "compact",
        "keeper",
        "demo",
        "completions",
    ];
    for verb in verbs {
        let args: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let help = place.cairn(&args);
        assert!(help.starts_with("exit code 0"), "{help}");
        assert!(
            help.contains(&format!("Examples:\n  cairn {verb}")),
            "{help}"
        );
    }
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = Place::empty().output(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(
            script.contains("reshard") && output.status.success(),
            "{shell}"
        );
    }
}

/// What a shell is offered for the last of the words of a line.
fn completed(place: &Place, words: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_cairn"))
        .arg("--")
        .args(words)
        .current_dir(place.path(""))
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .output()
        .unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_string).collect()
}

#[test]
fn names_and_steps_are_completed_by_looking() {
    let place = Place::with_run();
    let norm = ["model.norm.weight"];
    assert_eq!(completed(&place, &["cairn", "cat", "run", "model.n"]), norm);
    assert_eq!(
        completed(&place, &["cairn", "inspect", "run", "--map", "model.n"]),
        norm
    );
    assert_eq!(
        completed(&place, &["cairn", "cat", "nowhere", "model.n"]),
        [""; 0]
    );
    assert_eq!(
        completed(&place, &["cairn", "diff", "run:"]),
        ["run:10", "run:20"]
    );
    assert_eq!(
        completed(&place, &["cairn", "report", "run", "--step", "2"]),
        ["20"]
    );
    assert_eq!(completed(&place, &["cairn", "inspect", "ru"]), ["run/"]);
    assert!(completed(&place, &["cairn", "st"]).contains(&"stats".to_string()));
}
