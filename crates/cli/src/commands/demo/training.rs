//! A model that trains, is killed, and goes on from its checkpoint on another mesh.
//!
//! Three processes of `cairn train` play: one that nobody disturbs, one that is killed without warning, and one that goes on where that one was, on
//! other ranks. If nothing was lost, the losses of all steps are those of the first.

use super::plot::{self, Curve};
use super::{corpus, svg};
use crate::commands::train::metrics;
use crate::error::Error;
use crate::printer::Printer;
use crate::table::{Style, Table, cell};
use crate::units::size;
use cairn::checkpoint::{Checkpoint, all_steps};
use cairn::store::{Local, PutMode, Store};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const MESH_BEFORE: &str = "dp=2,pp=2,tp=2";
const MESH_AFTER: &str = "dp=3,tp=2";
const TEXT_BYTES: usize = 200_000;
/// Steps from one checkpoint to the next.
const EVERY: u64 = 5;
/// How far apart losses may be that only the order of sums distinguishes.
const TOLERANCE: f64 = 1e-3;
/// How long a step may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

const CONFIG: &str = r#"# A small Llama that learns to tell stories, letter by letter.
seed = 1
steps = 60

[model.config]
architectures = ["LlamaForCausalLM"]
vocab_size = 257
hidden_size = 96
intermediate_size = 256
num_hidden_layers = 4
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 128

[data]
sources = "stories.tokens"

[batch]
sequences = 24
length = 128
micro_batch = 4

[learning_rate]
peak = 3e-3
warmup = 5

[parallel]
zero = 1

[checkpoints]
folder = "undisturbed"
every = 5
"#;

/// What the demo saw.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    mesh_before: &'static str,
    mesh_after: &'static str,
    steps: u64,
    /// The last step that the killed process told of.
    killed_after: u64,
    /// The checkpoint that the next one went on from.
    resumed_from: u64,
    loss: f64,
    undisturbed_loss: f64,
    /// The greatest difference of the losses of a step.
    farthest: f64,
    seconds: f64,
    saves: Vec<Save>,
    #[serde(skip)]
    curves: Vec<Curve>,
}

/// A checkpoint of the disturbed run.
#[derive(Debug, Serialize)]
struct Save {
    step: u64,
    ranks: usize,
    len_bytes: u64,
    stall_seconds: f64,
    committed_seconds: f64,
}

/// Loss by step.
type Losses = BTreeMap<u64, f64>;

pub(super) fn play(folder: &str, steps: u64, printer: &Printer) -> Result<Outcome, Error> {
    let begun = Instant::now();
    let store = Local::new(folder);
    store.put("demo.toml", CONFIG.as_bytes(), PutMode::Replace)?;
    corpus::write(&store, "stories.tokens", TEXT_BYTES)?;
    let stage = Stage {
        folder,
        steps,
        printer,
    };
    let undisturbed = stage.train("undisturbed", MESH_BEFORE, "training undisturbed", None)?;
    // In the middle, and well after a checkpoint.
    let fatal = steps * 3 / 5 + EVERY / 2;
    let lost = stage.train("killed", MESH_BEFORE, "training again", Some(fatal))?;
    let killed_after = lost.keys().last().copied().unwrap_or(0);
    printer.note(&format!("killed after step {killed_after}"));
    let resumed = stage.train("killed", MESH_AFTER, "resuming", None)?;
    let saves = saves(&format!("{folder}/killed"))?;
    let before = saves.iter().filter(|save| save.ranks == ranks(MESH_BEFORE));
    let resumed_from = before.map(|save| save.step).max().unwrap_or(0);
    let outcome = Outcome {
        mesh_before: MESH_BEFORE,
        mesh_after: MESH_AFTER,
        steps,
        killed_after,
        resumed_from,
        loss: last(&resumed),
        undisturbed_loss: last(&undisturbed),
        farthest: farthest(&undisturbed, &resumed),
        seconds: begun.elapsed().as_secs_f64(),
        saves,
        curves: curves(&undisturbed, &lost, &resumed, resumed_from),
    };
    let mark = (killed_after as f64, "killed");
    let title = "Killed and resumed on another mesh, against a run that nobody disturbed";
    let picture = svg::draw(title, &outcome.curves, mark);
    store.put("loss.svg", picture.as_bytes(), PutMode::Replace)?;
    Ok(outcome)
}

/// Where the processes play.
struct Stage<'a> {
    folder: &'a str,
    steps: u64,
    printer: &'a Printer,
}

impl Stage<'_> {
    /// Trains in a process of its own, until it is done or, having told of step `fatal`, is killed.
    fn train(
        &self,
        run: &str,
        mesh: &str,
        what: &str,
        fatal: Option<u64>,
    ) -> Result<Losses, Error> {
        let mut process = Process::start(self.folder, run, mesh, self.steps)?;
        let folder = format!("{}/{run}", self.folder);
        let mut told = (0, Instant::now());
        loop {
            let ended = process.ended()?;
            let losses = losses(&folder)?;
            let step = losses.keys().last().copied().unwrap_or(0);
            let is_last = ended.is_some() || fatal.is_some_and(|fatal| step >= fatal);
            if step != told.0 || is_last {
                told = (step, Instant::now());
                let loss = last(&losses);
                let line = format!(
                    "{what} on {mesh}: step {step} of {}, loss {loss:.3}",
                    self.steps
                );
                self.show(&line, is_last);
            }
            match ended {
                Some(status) if status.success() => return Ok(losses),
                Some(_) => return Err(process.failure(run)),
                None if is_last => return Ok(losses),
                None if told.1.elapsed() > PATIENCE => return Err(process.failure(run)),
                None => thread::sleep(POLL),
            }
        }
    }

    /// Lines for every step would be too many where they do not take each other's place.
    fn show(&self, line: &str, is_last: bool) {
        if is_last || self.printer.is_watched() {
            self.printer.live(line, is_last);
        }
    }
}

/// A `cairn train`; killed when dropped, so that it never outlives the demo.
struct Process(Child);

impl Process {
    fn start(folder: &str, run: &str, mesh: &str, steps: u64) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(Error::Child)?;
        let child = Command::new(program)
            .args(["train", &format!("{folder}/demo.toml"), "--quiet"])
            .args(["--mesh", mesh])
            .args(["--set", &format!("checkpoints.folder={run}")])
            .args(["--set", &format!("steps={steps}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Ok(Self(child.map_err(Error::Child)?))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.0.try_wait().map_err(Error::Child)
    }

    fn failure(&self, run: &str) -> Error {
        Error::ChildFailed { run: run.into() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The losses that a run has written down so far.
fn losses(folder: &str) -> Result<Losses, Error> {
    let line = |line: &Value| Some((line["step"].as_u64()?, line["loss"].as_f64()?));
    Ok(metrics::read(folder)?.iter().filter_map(line).collect())
}

fn last(losses: &Losses) -> f64 {
    losses.values().last().copied().unwrap_or(f64::NAN)
}

/// The greatest difference; infinite if a step is missing.
fn farthest(one: &Losses, other: &Losses) -> f64 {
    let steps = one.keys().chain(other.keys());
    let distance = |step| match (one.get(step), other.get(step)) {
        (Some(one), Some(other)) => (one - other).abs(),
        _ => f64::INFINITY,
    };
    steps.map(distance).fold(0.0, f64::max)
}

fn curves(undisturbed: &Losses, lost: &Losses, resumed: &Losses, from: u64) -> Vec<Curve> {
    let curve = |name: &str, style, losses: &Losses, least: u64, most: u64| Curve {
        name: name.to_string(),
        style,
        points: losses
            .range(least..=most)
            .map(|(step, loss)| (*step as f64, *loss))
            .collect(),
    };
    let end = u64::MAX;
    vec![
        curve("undisturbed", Style::Dim, undisturbed, 0, end),
        curve("until it was killed", Style::Cyan, lost, 0, from),
        curve("resumed on another mesh", Style::Yellow, resumed, from, end),
        curve("lost steps", Style::Red, lost, from, end),
    ]
}

/// The checkpoints of a run, and what they cost.
fn saves(folder: &str) -> Result<Vec<Save>, Error> {
    let run: Arc<dyn Store> = Arc::new(Local::new(folder));
    let mut saves = Vec::new();
    for step in all_steps(run.as_ref())? {
        // A step that was being saved when the process was killed is no checkpoint.
        let Ok(checkpoint) = Checkpoint::open(run.clone(), step) else {
            continue;
        };
        let timelines = checkpoint.timelines()?;
        saves.push(Save {
            step,
            ranks: checkpoint.manifest().writers(),
            len_bytes: checkpoint.manifest().len_bytes,
            stall_seconds: timelines.stall().as_secs_f64(),
            committed_seconds: timelines.total().as_secs_f64(),
        });
    }
    Ok(saves)
}

/// The ranks of a mesh of this file.
fn ranks(mesh: &str) -> usize {
    mesh.parse::<cairn::sharding::Mesh>()
        .map_or(0, |mesh| mesh.size())
}

impl Outcome {
    /// Whether the losses are those of a run that nobody disturbed.
    pub(super) fn holds(&self) -> bool {
        self.farthest <= TOLERANCE
    }

    pub(super) fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub(super) fn text(&self, printer: &Printer) -> String {
        const ROWS: usize = 16;
        const AXIS: usize = 10;
        let paint = printer.paint();
        let columns = printer.columns().clamp(40, 110) - AXIS;
        let plot = plot::draw(&self.curves, columns, ROWS, paint);
        let facts = self.facts().render(paint);
        let saves = self.save_table().render(paint);
        format!("{plot}\n{facts}\n{saves}")
    }

    fn facts(&self) -> Table {
        let mut facts = Table::facts();
        let (before, after) = (self.mesh_before, self.mesh_after);
        facts.fact(
            "killed",
            format!(
                "after step {} of {}, on {before}",
                self.killed_after, self.steps
            ),
        );
        let again = self.killed_after.saturating_sub(self.resumed_from);
        facts.fact(
            "resumed",
            format!(
                "from step {} on {after}; {again} steps were done again",
                self.resumed_from
            ),
        );
        let (loss, other) = (self.loss, self.undisturbed_loss);
        facts.fact("loss", format!("{loss:.6}, undisturbed {other:.6}"));
        let farthest = format!(
            "{:.1e} is the greatest difference of any step",
            self.farthest
        );
        facts.fact(
            "compare",
            match self.holds() {
                true => cell(
                    Style::Green,
                    format!("{farthest}: as if nothing had happened"),
                ),
                false => cell(Style::Red, farthest),
            },
        );
        facts.fact("time", format!("{:.0} s", self.seconds));
        facts
    }

    fn save_table(&self) -> Table {
        let mut table = Table::new(&[
            " STEP",
            " RANKS",
            " SIZE",
            " TRAINING WAITED",
            " COMMITTED AFTER",
        ]);
        for save in &self.saves {
            table.row(vec![
                save.step.to_string().into(),
                save.ranks.to_string().into(),
                size(save.len_bytes).into(),
                format!("{:.1} ms", save.stall_seconds * 1e3).into(),
                format!("{:.0} ms", save.committed_seconds * 1e3).into(),
            ]);
        }
        table
    }
}
