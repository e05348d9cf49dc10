//! `cairn train` and `cairn generate` as processes: from one rank to many, interrupted, killed, resumed elsewhere.

mod processes;

use crate::fixture::{Place, check};
use cairn::data::{TokenWriter, Width};
use cairn::store::{Local, Store};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const CONFIG: &str = r#"
seed = 3
steps = 10

[model.config]
architectures = ["LlamaForCausalLM"]
vocab_size = 33
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2

[data]
sources = "train.tokens"

[batch]
sequences = 12
length = 16
micro_batch = 2

[learning_rate]
peak = 1e-2

[checkpoints]
folder = "run"
every = 2

[evaluation]
every = 5
sources = "train.tokens"
"#;

impl Place {
    /// With `run.toml` and its data.
    fn with_config() -> Self {
        let place = Self::empty();
        std::fs::write(place.path("run.toml"), CONFIG).unwrap();
        let store: Arc<dyn Store> = Arc::new(Local::new(place.path("")));
        let mut writer = TokenWriter::create(&store, "train.tokens", Width::U16, Some(33)).unwrap();
        for document in 0..40_u32 {
            let tokens: Vec<u32> = (0..50).map(|at| (document + at * at) % 33).collect();
            writer.push(&tokens, None).unwrap();
        }
        writer.finish().unwrap();
        place
    }

    /// The lines of `metrics.jsonl`; what is half written is left out.
    fn metrics(&self, run: &str) -> Vec<Value> {
        let text =
            std::fs::read_to_string(self.path(run).join("metrics.jsonl")).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines.collect()
    }

    fn steps(&self, run: &str) -> Vec<u64> {
        let lines = self.metrics(run);
        lines
            .iter()
            .map(|line| line["step"].as_u64().unwrap())
            .collect()
    }

    fn losses(&self, run: &str) -> Vec<f64> {
        let lines = self.metrics(run);
        lines
            .iter()
            .map(|line| line["loss"].as_f64().unwrap())
            .collect()
    }

    /// Starts to train, to be disturbed.
    fn start(&self, args: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_cairn"))
            .args(["train", "run.toml", "--quiet"])
            .args(args)
            .current_dir(self.path(""))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Waits until a run has told of a step.
    fn wait_for(&self, run: &str, step: u64) {
        let begun = Instant::now();
        while self.steps(run).last().is_none_or(|last| *last < step) {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "step {step} never came"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn one_rank_and_four_train_alike() {
    let place = Place::with_config();
    let alone = place.json(&["train", "run.toml"]);
    let args = [
        "train",
        "run.toml",
        "--mesh",
        "dp=2,tp=2",
        "--set",
        "checkpoints.folder=four",
    ];
    let four = place.json(&args);
    assert_eq!(alone["ending"], "finished");
    assert_eq!(four["step"], 10);
    assert_eq!(place.steps("run"), (1..=10).collect::<Vec<_>>());
    let (one, other) = (place.losses("run"), place.losses("four"));
    assert!(one[9] < one[0], "{one:?}");
    for (one, other) in one.iter().zip(&other) {
        assert!((one - other).abs() < 1e-4, "{one} {other}");
    }
    let evaluation = std::fs::read_to_string(place.path("run/evaluation.jsonl")).unwrap();
    assert_eq!(evaluation.lines().count(), 2);
    assert_eq!(place.files("run", ".cairn").len(), 1, "one file of events");
    // A run that is done does nothing more.
    let again = place.json(&["train", "run.toml"]);
    assert_eq!(again["resumed_from"], 10);
    assert_eq!(place.steps("run"), (1..=10).collect::<Vec<_>>());
}

#[test]
fn an_interrupted_run_is_saved_and_goes_on_elsewhere() {
    let place = Place::with_config();
    place.json(&[
        "train",
        "run.toml",
        "--set",
        "checkpoints.folder=whole",
        "--set",
        "steps=30",
    ]);
    let mut child = place.start(&[
        "--mesh",
        "dp=2",
        "--set",
        "steps=30",
        "--set",
        "checkpoints.every=1000",
    ]);
    place.wait_for("run", 3);
    let sent = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let done = *place.steps("run").last().unwrap();
    let rest = place.json(&[
        "train",
        "run.toml",
        "--ranks",
        "4",
        "--set",
        "parallel.mesh=pp=2",
        "--set",
        "steps=30",
    ]);
    assert_eq!(rest["resumed_from"], done);
    assert_eq!(rest["mesh"], "dp=2,pp=2");
    assert_eq!(place.steps("run"), (1..=30).collect::<Vec<_>>());
    for (one, other) in place.losses("whole").iter().zip(place.losses("run")) {
        assert!((one - other).abs() < 1e-3, "{one} {other}");
    }
}

#[test]
fn a_run_that_is_killed_again_and_again_loses_nothing() {
    let place = Place::with_config();
    let steps = ["--set", "steps=40"];
    place.json(
        &[
            &["train", "run.toml", "--set", "checkpoints.folder=whole"],
            &steps[..],
        ]
        .concat(),
    );
    let meshes = ["dp=2", "tp=2,dp=2", "pp=2", "dp=3", "pp=2,tp=2"];
    for (life, mesh) in meshes.iter().enumerate() {
        let mut child = place.start(&[&["--mesh", *mesh], &steps[..]].concat());
        place.wait_for("run", 4 + 6 * life as u64);
        // At any moment of a step or a save.
        thread::sleep(Duration::from_millis((life as u64 * 37) % 50));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let last = place.json(&[&["train", "run.toml", "--mesh", "dp=6"], &steps[..]].concat());
    assert!(last["resumed_from"].as_u64().unwrap() >= 20, "{last}");
    assert_eq!(place.steps("run"), (1..=40).collect::<Vec<_>>());
    for (one, other) in place.losses("whole").iter().zip(place.losses("run")) {
        assert!((one - other).abs() < 1e-3, "{one} {other}");
    }
    let verified = place.output(&["verify", "run:40", "--read-data"]);
    assert_eq!(verified.status.code(), Some(0));
}

#[test]
fn a_trained_model_goes_on_with_tokens_the_same_way_every_time() {
    let place = Place::with_config();
    place.json(&["train", "run.toml"]);
    let args = ["generate", "run", "--tokens", "1,2,3", "--max-tokens", "8"];
    let greedy = place.json(&args);
    assert_eq!(greedy["tokens"].as_array().unwrap().len(), 8);
    assert_eq!(greedy, place.json(&args));
    let daring = [&args[..], &["--temperature", "5", "--seed", "1"]].concat();
    assert_eq!(place.json(&daring), place.json(&daring));
    assert_ne!(place.json(&daring)["tokens"], greedy["tokens"]);
    let told = place.json(&[&args[..], &["--logits"]].concat());
    assert_eq!(told["logits"][7].as_array().unwrap().len(), 33);
}

#[test]
fn a_dry_run_shows_who_holds_what() {
    let place = Place::with_config();
    let text = place.cairn(&["train", "run.toml", "--mesh", "dp=2,pp=2", "--dry-run"]);
    let text = text.replace(place.path("").to_str().unwrap(), "");
    let (head, machine) = text.split_once("the machine has ").unwrap();
    check!(format!("{head}{}", machine.split_once('\n').unwrap().1), @"");
    assert!(!place.path("run").exists());
}

#[test]
fn all_mistakes_of_a_config_are_told_at_once() {
    let place = Place::with_config();
    let text = CONFIG
        .replace("hidden_size = 16", "hidden_siz = 16")
        .replace("peak = 1e-2", "peek = 1e-2")
        .replace("length = 16", "length = \"16\"");
    std::fs::write(place.path("run.toml"), text).unwrap();
    check!(place.cairn(&["train", "run.toml", "--set", "data.sources=nowhere", "--mesh", "dp=2,ep=2"]), @"");
    check!(place.cairn(&["train", "nowhere.toml"]), @"");
}

#[test]
fn layouts_that_cannot_be_are_told_with_those_that_can() {
    let place = Place::with_config();
    check!(place.cairn(&["train", "run.toml", "--mesh", "dp=5,tp=4", "--set", "parallel.chunks=3"]), @"");
    check!(place.cairn(&["train", "run.toml", "--ranks", "7", "--set", "parallel.mesh=tp=2"]), @"");
}

#[test]
fn help_says_what_an_interrupt_does() {
    check!(Place::empty().cairn(&["train", "--help"]), @"");
    check!(Place::empty().cairn(&["generate", "--help"]), @"");
}

#[test]
fn generating_without_a_model_or_a_start_is_refused() {
    let place = Place::with_run();
    check!(place.cairn(&["generate", "run", "--tokens", "1"]), @"");
    check!(place.cairn(&["generate", "run"]), @"");
}
