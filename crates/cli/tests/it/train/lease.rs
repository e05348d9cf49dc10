//! A run belongs to one trainer, and to one model, seed and batch.

use crate::fixture::Place;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// More steps than are ever made.
const LONG: [&str; 4] = ["--set", "steps=100000", "--set", "checkpoints.every=20"];

impl Place {
    /// Starts to train for long, and tells in the end what it said.
    fn start_long(&self) -> Child {
        Command::new(env!("CARGO_BIN_EXE_cairn"))
            .args(["train", "run.toml", "--quiet"])
            .args(LONG)
            .current_dir(self.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn stop(child: &mut Child) {
        let sent = Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    fn train_with(&self, settings: &[&str]) -> Output {
        let settings = settings.iter().flat_map(|setting| ["--set", *setting]);
        let args: Vec<&str> = ["train", "run.toml"].into_iter().chain(settings).collect();
        self.output(&args)
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_second_trainer_is_refused_while_the_first_lives() {
    let place = Place::with_config();
    let mut first = place.start_long();
    place.wait_for("run", 3);
    let second = place.output(&["train", "run.toml"]);
    let text = told(&second);
    assert_eq!(second.status.code(), Some(1), "{text}");
    assert!(
        text.contains(&format!("is being trained by process {} on", first.id())),
        "{text}"
    );
    assert!(text.contains("--take-over"), "{text}");
    let done = place.steps("run").len();
    place.wait_for("run", done as u64 + 3);
    Place::stop(&mut first);
    assert_eq!(first.wait().unwrap().code(), Some(0));
    let steps = place.steps("run");
    assert_eq!(
        steps,
        (1..=steps.len() as u64).collect::<Vec<_>>(),
        "no line is lost"
    );
    // It left the run, and another may have it.
    let after = format!("steps={}", steps.len() + 1);
    assert_eq!(place.train_with(&[&after]).status.code(), Some(0));
}

#[test]
fn a_run_is_taken_over_on_purpose_and_its_trainer_ends() {
    let place = Place::with_config();
    let mut first = place.start_long();
    place.wait_for("run", 25);
    let second = place.output(&["train", "run.toml", "--take-over", "--set", "steps=30"]);
    assert_eq!(second.status.code(), Some(0), "{}", told(&second));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = first.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it goes on");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(2));
    let text = told(&first.wait_with_output().unwrap());
    assert!(text.contains("the run was taken over by process"), "{text}");
}

#[test]
fn a_trainer_that_was_killed_is_followed_at_once() {
    let place = Place::with_config();
    let mut first = place.start_long();
    place.wait_for("run", 21);
    first.kill().unwrap();
    // Nobody has asked yet how it ended.
    let begun = Instant::now();
    let second = place.train_with(&["steps=22"]);
    assert_eq!(second.status.code(), Some(0), "{}", told(&second));
    assert!(begun.elapsed() < Duration::from_secs(20));
    first.wait().unwrap();
}

#[test]
fn another_seed_model_or_batch_is_refused_with_what_differs() {
    let place = Place::with_config();
    assert_eq!(place.train_with(&["steps=4"]).status.code(), Some(0));
    let metrics = std::fs::read_to_string(place.path("run/metrics.jsonl")).unwrap();
    for (setting, difference) in [
        ("seed=99", "`seed` was 3, is 99"),
        (
            "model.config.hidden_size=32",
            "`model.config.hidden_size` was 16, is 32",
        ),
        (
            "model.config.rms_norm_eps=0.01",
            "`model.config.rms_norm_eps` was 1e-6, is 0.01",
        ),
        ("batch.sequences=6", "`batch.sequences` was 12, is 6"),
        (
            "optimizer.kind=sgd",
            "`optimizer.kind` was \"adamw\", is \"sgd\"",
        ),
    ] {
        let refused = place.train_with(&["steps=6", setting]);
        let text = told(&refused);
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(text.contains("this is not the run of step 4: "), "{text}");
        assert!(text.contains(difference), "{text}");
        assert!(text.lines().count() < 10, "{text}");
    }
    let after = std::fs::read_to_string(place.path("run/metrics.jsonl")).unwrap();
    assert_eq!(metrics, after, "nothing was touched");
    let may = place.train_with(&["steps=6", "batch.sequences=6", "may_change=batch"]);
    let text = told(&may);
    assert_eq!(may.status.code(), Some(0), "{text}");
    assert!(
        text.contains("changed since step 4: `steps` was 4, is 6"),
        "{text}"
    );
    assert!(text.contains("`batch.sequences` was 12, is 6"), "{text}");
}
