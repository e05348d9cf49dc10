//! Configs that say what they mean, and every kind of mistake with its line and its cure.

use super::*;
use crate::settings::{Optimizer, Recompute, Shape};
use proptest::prelude::*;
use std::path::Path;

const SMALL: &str = "\
seed = 7
steps = 100

[model.config]
architectures = [\"LlamaForCausalLM\"]
vocab_size = 99
hidden_size = 64
intermediate_size = 96
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2

[data]
sources = \"Cargo.toml\"

[batch]
sequences = 8
length = 32

[checkpoints]
folder = \"runs/small\"
";

/// Paths are seen from this crate's folder, which has a `Cargo.toml`.
fn parsed(text: &str, settings: &[&str]) -> Result<Config, Problems> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR"));
    let settings: Vec<String> = settings.iter().map(|text| text.to_string()).collect();
    parse("train.toml", text, base, &settings)
}

/// What is wrong, with paths as the test sees them.
fn complaints(text: &str, settings: &[&str]) -> String {
    let problems = parsed(text, settings).unwrap_err();
    problems
        .to_string()
        .replace(concat!(env!("CARGO_MANIFEST_DIR"), "/"), "")
}

#[test]
fn a_small_config_is_filled_up_with_defaults() {
    let config = parsed(SMALL, &[]).unwrap();
    assert_eq!(config.settings.seed, 7);
    assert_eq!(config.settings.batch, 8);
    assert_eq!(config.settings.clip, Some(1.0));
    assert_eq!(config.model.config.hidden_size, 64);
    assert_eq!(config.data.length, 32);
    assert!(config.data.sources[0].path.ends_with("/Cargo.toml"));
    assert!(config.folder.ends_with("/runs/small"));
    assert_eq!(config.log.folder, config.folder);
    assert_eq!(config.evaluation, None);
}

#[test]
fn a_durable_store_makes_the_folder_a_fast_tier() {
    let config = parsed(SMALL, &[]).unwrap();
    assert_eq!(config.address(), config.folder);
    let durable = "checkpoints.durable=file:///data/small";
    let config = parsed(SMALL, &[durable]).unwrap();
    let address = format!("tiers:{},file:///data/small", config.folder);
    assert_eq!(config.address(), address);
    let config = parsed(SMALL, &[durable, "checkpoints.per_node=true"]).unwrap();
    assert_eq!(config.address(), format!("node-{address}"));
    let complaint = complaints(SMALL, &["checkpoints.per_node=true"]);
    assert!(complaint.contains("checkpoints.durable"), "{complaint}");
}

#[test]
fn all_mistakes_are_told_at_once_with_their_lines() {
    let text = "\
steps = -1
sed = 3

[model.config]
architectures = [\"LlamaForCausalLM\"]
vocab_size = 99
hidden_size = 64
intermediate_size = 96
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2

[data]
sources = [\"Cargo.toml\", \"nowhere.tokens\", {path = \"Cargo.toml\", wight = 2}]
cut = \"maskd\"

[batch]
sequences = 12
length = 0
micro_batch = 4

[optimizer]
learning_rate = 1e-3
betas = [0.9, 1.0]

[parallel]
mesh = \"dp=2\"
zero = 4

[checkpoint]
folder = \"runs\"
";
    assert_eq!(
        complaints(text, &[]),
        "\
`train.toml` has 12 problems
  line 1: `steps` must be a whole number, 0 or more, not `-1`
  line 2: there is no key `sed`; did you mean `seed`?
  line 14: there is no `nowhere.tokens`
  line 14: there is no key `data.sources.wight`; did you mean `weight`?
  line 15: there is no `data.cut` named `maskd`; did you mean `masked`?
  line 19: `batch.length` must be at least 1, not `0`
  line 20: a rank's 6 sequences are no micro-batches of 4; possible are 1, 2, 3, 6
  line 23: there is no key `optimizer.learning_rate`; known are `weight_decay`, `kind`, `betas`, `epsilon`, `clip`, `max_skipped`, `offload`, `offload_folder`
  line 24: `optimizer.betas` must be at least 0 and less than 1, not `0.9, 1`
  line 28: `parallel.zero` must be 0, 1, 2 or 3, not `4`
  line 30: there is no key `checkpoint`; did you mean `checkpoints`?
  `checkpoints.folder` is missing"
    );
}

#[test]
fn an_empty_file_tells_what_it_needs() {
    assert_eq!(
        complaints("", &[]),
        "\
`train.toml` has 6 problems
  `steps` is missing
  `batch.sequences` is missing
  `batch.length` is missing
  `checkpoints.folder` is missing
  `model` is missing
  `data.sources` is missing"
    );
}

#[test]
fn a_break_in_the_syntax_is_told_with_its_line() {
    let text = SMALL.replace("seed = 7", "seed = ");
    let told = complaints(&text, &[]);
    assert!(
        told.starts_with("`train.toml` has 1 problem\n  line 1: this is no TOML: "),
        "{told}"
    );
}

#[test]
fn settings_take_the_place_of_lines_and_are_blamed_for_mistakes() {
    let config = parsed(
        SMALL,
        &[
            "steps=5",
            "parallel.mesh=dp=2,tp=2",
            "optimizer.kind = \"sgd\"",
            "learning_rate={peak=0.5, shape=\"linear\"}",
            "parallel.recompute=selected",
            "batch.micro_batch=2",
        ],
    );
    let settings = config.unwrap().settings;
    assert_eq!(settings.steps, 5);
    assert_eq!(settings.parallel.mesh.to_string(), "dp=2,tp=2");
    assert!(matches!(settings.optimizer, Optimizer::Sgd { .. }));
    assert_eq!(settings.learning_rate.shape, Shape::Linear);
    assert_eq!(settings.learning_rate.end, 0.05);
    assert_eq!(settings.recompute, Recompute::Selected);
    assert_eq!(settings.parallel.micro_batches, 2);
    let told = complaints(SMALL, &["stesp=5", "nonsense", "parallel.mesh=dp=0"]);
    let expected = "\
  `--set nonsense`: this is no `key=value`; write `--set optimizer.weight_decay=0.1`
  `--set parallel.mesh=dp=0`: ";
    assert!(told.contains(expected), "{told}");
    assert!(told.contains("`--set stesp=5`: there is no key `stesp`; did you mean `steps`?"));
}

/// The table of the model in `SMALL`.
fn inline() -> &'static str {
    let start = SMALL.find("[model.config]").unwrap();
    &SMALL[start..SMALL.find("[data]").unwrap()]
}

#[test]
fn a_model_is_told_by_a_file_or_the_folder_of_its_weights_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    let text = parsed(SMALL, &[]).unwrap().model.config.to_json();
    #[expect(clippy::disallowed_methods, reason = "a test makes its file")]
    std::fs::write(&file, text.replace("64", "128")).unwrap();
    for model in [
        format!("[model]\nweights = {:?}\n", folder.path()),
        format!("[model]\nconfig = {file:?}\n"),
    ] {
        let config = parsed(&SMALL.replace(inline(), &model), &[]).unwrap();
        assert_eq!(config.model.config.hidden_size, 128);
    }
}

#[test]
fn what_is_wrong_with_a_model_is_told_at_its_place() {
    let told = |model: &str| complaints(&SMALL.replace(inline(), model), &[]);
    let text = told("[model]\nconfig = \"Cargo.toml\"\n");
    assert!(
        text.contains("line 5: the model: it is not a JSON object"),
        "{text}"
    );
    let text = told(&inline().replace("vocab_size = 99", "vocab_size = \"many\""));
    assert!(text.contains("problem\n  line 4: the model: "), "{text}");
    let text = complaints(SMALL, &["parallel.mesh=tp=4"]);
    assert!(
        text.contains("2 key and value heads (`num_key_value_heads`)"),
        "{text}"
    );
}

#[test]
fn ranks_become_replicas() {
    let mesh = |settings: &[&str]| {
        let config = parsed(SMALL, &[settings, &["batch.sequences=24"]].concat());
        config.map(|config| config.settings.parallel.mesh.to_string())
    };
    assert_eq!(mesh(&["parallel.ranks=4"]).unwrap(), "dp=4");
    let cut = "parallel.mesh=pp=2,dp=7,tp=2";
    assert_eq!(mesh(&[cut, "parallel.ranks=12"]).unwrap(), "pp=2,dp=3,tp=2");
    let told = mesh(&[cut, "parallel.ranks=6"]).unwrap_err().to_string();
    assert!(
        told.contains("cut in 4 parts by `pp=2,dp=7,tp=2`; use 4 or 8 ranks"),
        "{told}"
    );
}

#[test]
fn what_ranks_hold_adds_up_to_the_model() {
    let config = parsed(SMALL, &["parallel.mesh=pp=2,tp=2,dp=2"]).unwrap();
    let held = holdings(&config).unwrap();
    assert_eq!(held.len(), 8);
    let replica = held.iter().filter(|held| held.coords[0] == 0);
    let parameters: u64 = replica.map(|held| held.parameters).sum();
    // Norms are on both ranks of `tp`.
    let norms = 64 * (2 * 2 + 1);
    assert_eq!(parameters, config.model.config.parameter_count() + norms);
    let shared = parsed(SMALL, &["parallel.mesh=dp=2", "parallel.zero=3"]).unwrap();
    let whole = parsed(SMALL, &["parallel.mesh=dp=2"]).unwrap();
    let bytes = |config| holdings(config).unwrap()[0].state_bytes;
    assert_eq!(2 * bytes(&shared), bytes(&whole));
}

#[test]
fn a_file_that_is_not_there_is_one_problem() {
    let told = read("nowhere/train.toml", &[]).unwrap_err().to_string();
    assert!(
        told.starts_with("`nowhere/train.toml` has 1 problem\n  it cannot be read: "),
        "{told}"
    );
}

proptest! {
    /// Whatever is in a file, the answer is a config or a list of problems.
    #[test]
    fn no_text_breaks_the_reader(text in "(\\PC|\n|=|\\[|\\]|\"){0,200}", setting in "\\PC{0,20}") {
        let found = parse("train.toml", &text, Path::new(""), &[setting]);
        prop_assert!(found.is_err_and(|problems| !problems.list.is_empty()));
    }

    /// One wrong value in a good file is one problem, at its line.
    #[test]
    fn a_wrong_value_is_told_with_its_line(line in 0_usize..21) {
        let mut lines: Vec<&str> = SMALL.lines().collect();
        let Some((key, _)) = lines[line].split_once(" = ") else { return Ok(()) };
        let wrong = format!("{key} = 1979-05-27");
        // What is inside a model's config is not ours to judge.
        prop_assume!(!inline().contains(key));
        lines[line] = &wrong;
        let problems = parsed(&lines.join("\n"), &[]).unwrap_err();
        prop_assert_eq!(&problems.list[0].place, &Place::Line(line + 1));
    }
}
