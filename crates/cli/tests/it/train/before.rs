//! What is wrong with a run is told before its first step.

use crate::fixture::Place;
use std::process::Output;

fn refused(place: &Place, settings: &[&str], more: &[&str]) -> String {
    let settings = settings.iter().flat_map(|setting| ["--set", *setting]);
    let args: Vec<&str> = ["train", "run.toml"].into_iter().chain(settings).collect();
    let Output { status, stderr, .. } = place.output(&[&args[..], more].concat());
    let text = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(2), "{text}");
    assert!(!place.path("run/metrics.jsonl").exists(), "{text}");
    text
}

#[test]
fn misspelt_fields_of_the_model_are_told() {
    let place = Place::with_config();
    let text = refused(
        &place,
        &[
            "model.config.num_key_value_head=2",
            "model.config.tie_word_embedding=true",
            "model.config.rope_thetta=3",
            "model.config.colour='blue'",
        ],
        &["--dry-run"],
    );
    for told in [
        "there is no field `num_key_value_head`; did you mean `num_key_value_heads`?",
        "there is no field `tie_word_embedding`; did you mean `tie_word_embeddings`?",
        "there is no field `rope_thetta`; did you mean `rope_theta`?",
        "there is no field `colour`; fields that only other tools read go into a file",
    ] {
        assert!(text.contains(told), "{text}");
    }
    let known = place.output(&[
        "train",
        "run.toml",
        "--set",
        "model.config.torch_dtype='float32'",
        "--dry-run",
    ]);
    assert_eq!(known.status.code(), Some(0));
}

#[test]
fn data_of_a_larger_vocabulary_than_the_models_is_refused() {
    let place = Place::with_config();
    for more in [&[][..], &["--dry-run"]] {
        let text = refused(&place, &["model.config.vocab_size=20"], more);
        let told = "has a vocabulary of 33 tokens, and the model one of 20 (`vocab_size`)";
        assert!(text.contains(told), "{text}");
        assert!(
            text.contains("make `model.config.vocab_size` at least 33"),
            "{text}"
        );
        assert!(!text.contains("damaged"), "{text}");
    }
}

#[test]
fn a_model_that_does_not_fit_the_memory_is_refused() {
    let place = Place::with_config();
    let settings = [
        "model.config.hidden_size=65536",
        "model.config.intermediate_size=262144",
        "model.config.num_hidden_layers=200",
    ];
    let text = refused(&place, &settings, &[]);
    assert!(text.contains("all ranks together keep"), "{text}");
    assert!(text.contains("of memory are left"), "{text}");
    assert!(text.contains("optimizer.offload"), "{text}");
}

#[test]
fn what_is_probably_not_meant_is_warned_of() {
    let place = Place::with_config();
    let output = place.output(&[
        "train",
        "run.toml",
        "--dry-run",
        "--set",
        "learning_rate.warmup=20",
        "--set",
        "parallel.zero=3",
        "--set",
        "steps=1e1",
    ]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("`learning_rate.warmup` is 20, and there are 10 steps"),
        "{text}"
    );
    assert!(
        text.contains("`parallel.zero` is 3, and there is no `dp`"),
        "{text}"
    );
}

#[test]
fn a_dry_run_opens_the_data() {
    let place = Place::with_config();
    std::fs::write(place.path("a.txt"), "no tokens").unwrap();
    let text = refused(&place, &["data.sources='a.txt'"], &["--dry-run"]);
    assert!(text.contains("a.txt"), "{text}");
    let text = refused(&place, &["optimizer.epsilon=0"], &[]);
    assert!(
        text.contains("`optimizer.epsilon` must be more than 0"),
        "{text}"
    );
}
