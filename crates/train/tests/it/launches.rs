//! Whole runs as a config tells them: batches by tokens, data that changes, and any config at all.

use cairn_data::{TokenWriter, Width};
use cairn_store::{Local, Store};
use cairn_train::config::{Config, Moment, Problems, holdings, launch, parse};
use cairn_train::{Ending, Error, Event, StepReport};
use proptest::prelude::*;
use std::sync::Arc;
use tempfile::TempDir;

const SMALL: &str = r#"
seed = 3
steps = 6

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
cut = "documents"

[batch]
tokens = 48
length = 9

[learning_rate]
peak = 1e-2
shape = "constant"

[checkpoints]
folder = "run"
"#;

/// A folder with tokens and runs.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder }
    }

    /// Writes so many documents of one to twelve tokens.
    fn write(&self, documents: u32) -> Result<(), cairn_data::Error> {
        let store: Arc<dyn Store> = Arc::new(Local::new(self.folder.path()));
        store.delete("train.tokens").expect("it can go");
        let mut writer = TokenWriter::create(&store, "train.tokens", Width::U16, Some(2))?;
        for document in 0..documents {
            let length = 1 + document * 7 % 12;
            let tokens: Vec<u32> = (0..length).map(|at| (at * at + document) % 5 % 2).collect();
            writer.push(&tokens, None)?;
        }
        writer.finish()?;
        Ok(())
    }

    fn config(&self, text: &str, settings: &[&str]) -> Result<Config, Problems> {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        parse("run.toml", text, self.folder.path(), &settings)
    }

    /// The steps of a launch.
    fn train(&self, settings: &[&str]) -> Vec<StepReport> {
        let config = self.config(SMALL, settings).expect("a config");
        run(&config).unwrap_or_else(|error| panic!("{settings:?}: {error}"))
    }
}

fn run(config: &Config) -> Result<Vec<StepReport>, Error> {
    let mut reports = Vec::new();
    let ending = launch(config, &Arc::default(), &mut |moment| {
        if let Moment::Event(Event::Step(report)) = moment {
            reports.push(report.clone());
        }
    })?;
    assert_eq!(ending, Ending::Finished);
    Ok(reports)
}

fn assert_close(found: &[StepReport], expected: &[StepReport]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((found.step, found.tokens), (expected.step, expected.tokens));
        let difference = (found.loss - expected.loss).abs();
        assert!(difference < 1e-5 * expected.loss, "{found:?} {expected:?}");
    }
}

#[test]
fn batches_by_tokens_are_the_same_on_every_layout_and_after_every_stop() {
    let place = Place::new();
    place.write(40).expect("tokens");
    let alone = place.train(&["checkpoints.folder=alone"]);
    let tokens: Vec<u64> = alone.iter().map(|report| report.tokens).collect();
    assert!(
        tokens.iter().all(|tokens| (1..=48).contains(tokens)),
        "{tokens:?}"
    );
    assert!(tokens.iter().any(|other| *other != tokens[0]), "{tokens:?}");
    let layouts = [
        ("dp=2", 1),
        ("dp=3", 2),
        ("pp=2,tp=2", 3),
        // More parts than there are sequences.
        ("dp=4,pp=2", 4),
    ];
    for (mesh, parts) in layouts {
        let folder = format!("checkpoints.folder=run-{parts}");
        let (mesh, parts) = (
            format!("parallel.mesh={mesh}"),
            format!("batch.micro_batches={parts}"),
        );
        let mut found = place.train(&[&mesh, &parts, &folder, "steps=3"]);
        found.extend(place.train(&["parallel.mesh=dp=5", &folder, "steps=4"]));
        found.extend(place.train(&[&mesh, "batch.micro_batches=2", &folder]));
        assert_close(&found, &alone);
    }
}

#[test]
fn sequences_limit_a_batch_by_tokens_too() {
    let place = Place::new();
    place.write(40).expect("tokens");
    let few = place.train(&["batch.sequences=2"]);
    assert!(few.iter().all(|report| report.tokens <= 18), "{few:?}");
    let refused = |settings: &[&str]| place.config(SMALL, settings).unwrap_err().to_string();
    let told = refused(&["batch.micro_batch=2"]);
    assert!(
        told.contains("does not go with `batch.tokens`; say in how many parts"),
        "{told}"
    );
    let told = refused(&["batch.tokens=8"]);
    assert!(told.contains("no room for a sequence of 9"), "{told}");
}

#[test]
fn other_data_is_refused_unless_it_may_change() {
    let place = Place::new();
    place.write(40).expect("tokens");
    place.train(&["steps=2"]);
    place.write(41).expect("tokens");
    let config = |settings: &[&str]| place.config(SMALL, settings).expect("a config");
    let refused = run(&config(&["steps=4"])).unwrap_err();
    let told = refused.to_string();
    assert!(told.contains("this is not the run of step 2: "), "{told}");
    assert!(
        told.contains("`data.sources.0.documents` was 40, is 41"),
        "{told}"
    );
    assert!(
        refused
            .hint()
            .is_some_and(|hint| hint.contains("--set may_change=data`"))
    );

    let mut changes = Vec::new();
    let changed = config(&["steps=4", "data.may_change=true", "batch.length=7"]);
    let ending = launch(&changed, &Arc::default(), &mut |moment| {
        if let Moment::Ready(Some(resumed)) = moment {
            changes = resumed.changes.clone();
        }
    });
    ending.expect("it goes on");
    assert!(
        changes.contains(&"`batch.length` was 9, is 7".to_string()),
        "{changes:?}"
    );
    // From now on this is the data of the run, wherever it lies.
    let elsewhere = Place::new();
    elsewhere.write(41).expect("tokens");
    let path = elsewhere.folder.path().join("train.tokens");
    let sources = format!("data.sources={}", path.display());
    assert_eq!(place.train(&["batch.length=7", &sources]).len(), 2);
}

/// Any model, mesh and batch, as a config.
fn configs() -> impl Strategy<Value = String> {
    let widths = (
        2usize..34,
        1usize..21,
        1usize..24,
        prop::option::of(1usize..7),
    );
    let heads = (0usize..4, 1usize..7, 1usize..5, any::<bool>(), 0usize..3);
    let mesh = (
        1usize..4,
        1usize..5,
        1usize..4,
        0u8..4,
        any::<bool>(),
        1usize..4,
    );
    let batch = (
        1usize..9,
        1usize..6,
        prop::option::of(1usize..4),
        any::<bool>(),
    );
    let rest = (0usize..3, any::<bool>(), 0usize..4, any::<bool>());
    (widths, heads, mesh, batch, rest).prop_map(|(widths, heads, mesh, batch, rest)| {
        let (vocabulary, hidden, inner, head) = widths;
        let (layers, queries, keys, tied, family) = heads;
        let (dp, pp, tp, zero, sequence_parallel, chunks) = mesh;
        let (sequences, length, micro_batch, by_tokens) = batch;
        let (recompute, narrow, cut, sgd) = rest;
        let family = ["llama", "qwen2", "qwen3"][family];
        let recompute = ["nothing", "selected", "everything"][recompute];
        let cut = ["stream", "masked", "packed", "documents"][cut];
        let dtype = if narrow { "bf16" } else { "f32" };
        let kind = if sgd { "sgd" } else { "adamw" };
        let head = head.map_or(String::new(), |width| format!("head_dim = {width}\n"));
        let batch = match (by_tokens, micro_batch) {
            (true, parts) => format!("tokens = {}\nmicro_batches = {}", sequences * length, parts.unwrap_or(1)),
            (false, None) => format!("sequences = {sequences}"),
            (false, Some(size)) => format!("sequences = {sequences}\nmicro_batch = {size}"),
        };
        format!(
            "steps = 1\n\n[model.config]\nmodel_type = \"{family}\"\nvocab_size = {vocabulary}\nhidden_size = {hidden}\n\
            intermediate_size = {inner}\nnum_hidden_layers = {layers}\nnum_attention_heads = {queries}\n\
            num_key_value_heads = {keys}\n{head}tie_word_embeddings = {tied}\n\n\
            [data]\nsources = \"train.tokens\"\ncut = \"{cut}\"\n\n[batch]\nlength = {length}\n{batch}\n\n\
            [optimizer]\nkind = \"{kind}\"\n\n\
            [parallel]\nmesh = \"dp={dp},pp={pp},tp={tp}\"\nzero = {zero}\nsequence_parallel = {sequence_parallel}\n\
            chunks = {chunks}\nrecompute = \"{recompute}\"\ndtype = \"{dtype}\"\n\n[checkpoints]\nfolder = \"run\"\n"
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A config is refused with reasons at once, or it trains.
    #[test]
    fn whatever_is_not_refused_trains(text in configs()) {
        let place = Place::new();
        place.write(9).expect("tokens");
        match place.config(&text, &[]) {
            Err(problems) => prop_assert!(!problems.list.is_empty()),
            Ok(config) => {
                let ranks = config.settings.parallel.mesh.size();
                prop_assert_eq!(holdings(&config).expect("a plan").len(), ranks);
                let reports = run(&config);
                let reports = reports.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
                prop_assert!(reports[0].loss.is_finite() && !reports[0].skipped, "{text}");
            }
        }
    }
}
