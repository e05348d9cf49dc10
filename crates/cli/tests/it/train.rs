//! `cairn train` and `cairn generate` as processes: from one rank to many, interrupted, killed, resumed elsewhere.

mod before;
mod lease;
mod processes;

use crate::fixture::{Place, check, floats};
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
        place.write_config();
        place
    }

    /// Writes `run.toml` and its data.
    pub(crate) fn write_config(&self) {
        std::fs::write(self.path("run.toml"), CONFIG).unwrap();
        let store: Arc<dyn Store> = Arc::new(Local::new(self.path("")));
        let mut writer = TokenWriter::create(&store, "train.tokens", Width::U16, Some(33)).unwrap();
        for document in 0..40_u32 {
            let tokens: Vec<u32> = (0..50).map(|at| (document + at * at) % 33).collect();
            writer.push(&tokens, None).unwrap();
        }
        writer.finish().unwrap();
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

    pub(crate) fn steps(&self, run: &str) -> Vec<u64> {
        let lines = self.metrics(run);
        lines
            .iter()
            .map(|line| line["step"].as_u64().unwrap())
            .collect()
    }

    pub(crate) fn losses(&self, run: &str) -> Vec<f64> {
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
    let (head, machine) = text.split_once("the machine has ").unwrap();
    let (_, ranks) = machine.split_once('\n').unwrap();
    check!(format!("{head}[MACHINE]\n{ranks}"), @r#"
    exit code 0
    ----- stdout
    model     LlamaForCausalLM, 4.98 k parameters in 2 layers
    mesh      dp=2,pp=2: 4 ranks
    batch     12 sequences of 16: 192 tokens, 3 micro-batches on each rank
    steps     10, 5.64 MFLOP each
    pipeline  waits 25 % of the time if all layers take the same
    run       run, a new run
    memory    about 310.0 KiB in all, [MACHINE]

    RANK  dp  pp  tp  BLOCKS              PARAMETERS     STATE  ACTIVATIONS
       0   0   0   0  embedding, layer 0      2.48 k  38.8 KiB     46.0 KiB
       1   0   1   0  layer 1, head           2.50 k  39.0 KiB     31.2 KiB
       2   1   0   0  embedding, layer 0      2.48 k  38.8 KiB     46.0 KiB
       3   1   1   0  layer 1, head           2.50 k  39.0 KiB     31.2 KiB
    ----- stderr
    "#);
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
    check!(place.cairn(&["train", "run.toml", "--set", "data.sources=nowhere", "--mesh", "dp=2,ep=2"]), @r#"
    exit code 2
    ----- stdout
    ----- stderr
    error: `run.toml` has 5 problems
      line 5: the model: `hidden_size` is missing
      line 19: `batch.length` must be a whole number, 0 or more, not `"16"`
      line 23: there is no key `learning_rate.peek`; did you mean `peak`?
      `--set data.sources=nowhere`: there is no `nowhere`
      the mesh has an axis `ep`; the axes are `dp`, `pp` and `tp`
    "#);
    check!(place.cairn(&["train", "nowhere.toml"]), @r#"
    exit code 2
    ----- stdout
    ----- stderr
    error: `nowhere.toml` has 1 problem
      it cannot be read: object `nowhere.toml` does not exist
    "#);
}

#[test]
fn layouts_that_cannot_be_are_told_with_those_that_can() {
    let place = Place::with_config();
    check!(place.cairn(&["train", "run.toml", "--mesh", "dp=5,tp=4", "--set", "parallel.chunks=3"]), @r#"
    exit code 2
    ----- stdout
    ----- stderr
    error: `run.toml` has 3 problems
      a batch of 12 sequences cannot be cut in 5 (`dp`) × 1 (`micro_batches`) equal parts; a batch of 10 or 15 can
      there are 3 chunks, but no pipeline; use `chunks = 1`, or a mesh with an axis `pp`
      2 key and value heads (`num_key_value_heads`) cannot be shared out over 4 ranks of `tp`; sizes of `tp` that fit this model: 1, 2
    "#);
    check!(place.cairn(&["train", "run.toml", "--ranks", "7", "--set", "parallel.mesh=tp=2"]), @r#"
    exit code 2
    ----- stdout
    ----- stderr
    error: `run.toml` has 1 problem
      `--set parallel.ranks=7`: 7 ranks cannot hold a model that is cut in 2 parts by `tp=2`; use 6 or 8 ranks
    "#);
}

#[test]
fn help_says_what_an_interrupt_does() {
    check!(Place::empty().cairn(&["train", "--help"]), @r#"
    exit code 0
    ----- stdout
    Train a model, from wherever its run is

    Usage: cairn train [OPTIONS] <CONFIG>

    Arguments:
      <CONFIG>  The run, as a TOML file; `docs/guide/training.md` lists its keys

    Options:
          --mesh <MESH>      The axes of the mesh, outermost first: dp=2,pp=2,tp=2
          --ranks <N>        How many ranks there are: the mesh gets as many replicas (`dp`) as they make
          --set <KEY=VALUE>  Put a value in the place of one of the config; may be given several times
          --take-over        Take the run from a trainer that may still be at it; that one ends at its next step
          --dry-run          Show who would hold what, and train nothing [alias: --plan]
      -h, --help             Print help

    Output:
          --json          Print one JSON object instead of text; `docs/cli.md` names its fields
      -q, --quiet         Hide notes, warnings and progress
      -v, --verbose       Tell on stderr what is being done
          --no-progress   Hide progress bars
          --color <WHEN>  When to use colour [default: auto] [possible values: auto, always, never]
          --trace <FILE>  When done, write everything that happened to FILE, one JSON object a line

    Ranks are threads of this process, or, with MPI built in, processes that `mpirun` started. A run that has checkpoints goes on from the newest good one, on whatever mesh is given now.
    A run belongs to one trainer: a second one is refused while the first lives.
    An interrupt (Ctrl-C, SIGTERM) ends the run after the step at hand: the step is saved, and the exit code is 0. A second one ends it at once.

    Examples:
      cairn train run.toml --dry-run                       what would be trained, by whom, in how much memory
      cairn train run.toml
      cairn train run.toml --mesh dp=2,pp=2,tp=2
      cairn train run.toml --ranks 6                       as many replicas as six ranks make
      cairn train run.toml --set steps=2000 --set learning_rate.peak=1e-3
    ----- stderr
    "#);
}

#[test]
fn help_of_generate_says_what_is_chosen() {
    check!(Place::empty().cairn(&["generate", "--help"]), @r#"
    exit code 0
    ----- stdout
    Go on with a text, as a model would

    Usage: cairn generate [OPTIONS] <--prompt <TEXT>|--tokens <N,N,…>> <PATH>

    Arguments:
      <PATH>  A run, a step, or a Hugging Face folder

    Options:
          --prompt <TEXT>     The text to go on with
          --tokens <N,N,…>    The tokens to go on with, in place of a text
          --tokenizer <NAME>  What text becomes tokens by: a tokenizer.json, a folder with one, or `bytes`; that of the model if not given
          --max-tokens <N>    How many tokens to add at most [default: 64]
          --temperature <T>   How daring to be: 0 takes the likeliest token, 1 follows the model [default: 0]
          --top-p <P>         Choose among the likeliest tokens only, which together have this probability [default: 1]
          --seed <N>          Decides what is random [default: 0]
          --logits            With --json: tell the logits that each token was chosen by
      -h, --help              Print help

    Output:
          --json          Print one JSON object instead of text; `docs/cli.md` names its fields
      -q, --quiet         Hide notes, warnings and progress
      -v, --verbose       Tell on stderr what is being done
          --no-progress   Hide progress bars
          --color <WHEN>  When to use colour [default: auto] [possible values: auto, always, never]
          --trace <FILE>  When done, write everything that happened to FILE, one JSON object a line

    Without a temperature the likeliest token is taken each time. The same seed gives the same text.

    Examples:
      cairn generate runs/small --prompt 'Once upon'
      cairn generate hf-model --prompt 'Once upon' --temperature 0.8 --top-p 0.95 --seed 7
      cairn generate runs/small:2000 --tokens 1,5,9 --max-tokens 1 --logits --json
    ----- stderr
    "#);
}

#[test]
fn generating_without_a_model_or_a_start_is_refused() {
    let place = Place::with_run();
    place.safetensors("one.safetensors", &[("w", "F32", &[1][..], floats(&[1.0]))]);
    check!(place.cairn(&["generate", "one.safetensors", "--tokens", "1"]), @r#"
    exit code 2
    ----- stdout
    ----- stderr
    error: `one.safetensors` does not say what its model is like

    hint: a folder of Hugging Face has a `config.json`, and so have steps that `cairn train` wrote
    "#);
    check!(place.cairn(&["generate", "run"]), @r#"
    exit code 2
    ----- stdout
    ----- stderr
    error: the following required arguments were not provided:
      <--prompt <TEXT>|--tokens <N,N,…>>

    Usage: cairn generate <--prompt <TEXT>|--tokens <N,N,…>> <PATH>

    For more information, try '--help'.
    "#);
}
