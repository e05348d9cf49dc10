//! The state of a large model, without the model: saved, not committed without a rank, loaded elsewhere.
//!
//! Eight ranks, as threads, train a sharded model. A checkpoint is saved behind their backs. Then a rank is lost, the save that it
//! does not finish is not committed, and the state is loaded on another mesh, where every bit is compared with a run that
//! was never interrupted.

mod disk;
mod model;

use crate::error::Error;
use crate::printer::Printer;
use crate::table::{Style, Table, cell};
use crate::units::{count, plural, size};
use cairn::checkpoint::{
    Checkpointer, Layout, LoadOptions, Options, PlannedWriter, SaveOptions, World,
};
use cairn::store::{Local, Store};
use model::{Memory, Model};
use serde_json::{Value, json};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const MESH_BEFORE: &str = "dp=2,pp=2,tp=2";
const MESH_AFTER: &str = "dp=3,tp=2";
/// The rank that is lost.
const LOST_RANK: usize = 5;
/// The step that is saved, and the one that is not.
const SAVED_STEP: u64 = 2;
const LOST_STEP: u64 = 3;
/// How long the others wait for the lost rank.
const PATIENCE: Duration = Duration::from_secs(3);

/// Everything the demo measured.
#[derive(Debug)]
pub(super) struct Outcome {
    before: Model,
    after: Model,
    ceiling: disk::Ceiling,
    planning: Duration,
    stall: Duration,
    saving: Duration,
    refused: String,
    loading: Duration,
    over_read: f64,
    compared: u64,
    differing: Vec<String>,
}

/// Plays the story in `folder` with a state of so many bytes.
pub(super) fn play(folder: &str, bytes: f64, printer: &Printer) -> Result<Outcome, Error> {
    let store: Arc<dyn Store> = Arc::new(Local::new(folder));
    story(&store, bytes, printer)
}

fn story(store: &Arc<dyn Store>, bytes: f64, printer: &Printer) -> Result<Outcome, Error> {
    let (before, after) = (
        Model::new(MESH_BEFORE, bytes)?,
        Model::new(MESH_AFTER, bytes)?,
    );
    printer.note(&format!("measuring the disk at {}", store.url()));
    let ceiling = disk::measure(store.as_ref(), before.len_bytes())?;
    printer.note(&format!(
        "training on {}, saving step {SAVED_STEP} in the background",
        before.mesh
    ));
    let (stall, saving, refused) = train(store, &before)?;
    printer.note(&format!(
        "rank {LOST_RANK} is lost; loading step {SAVED_STEP} on {}",
        after.mesh
    ));
    let mut memory: Vec<Memory> = (0..after.mesh.size())
        .map(|rank| after.blank(rank))
        .collect();
    let (loading, over_read) = load(store, &after, &mut memory)?;
    printer.note("comparing every bit with a run that was never interrupted");
    let (compared, differing) = compare(&after, &memory);
    let layout = Layout::new(before.specs.clone(), Default::default());
    let start = Instant::now();
    PlannedWriter::new(&layout, 0, before.mesh.size())?;
    Ok(Outcome {
        planning: start.elapsed(),
        before,
        after,
        ceiling,
        stall,
        saving,
        refused,
        loading,
        over_read,
        compared,
        differing,
    })
}

/// Trains on all ranks. Returns the longest stall, the time to the commit, and what the unfinished save said.
fn train(store: &Arc<dyn Store>, model: &Model) -> Result<(Duration, Duration, String), Error> {
    let worlds = World::threads(model.mesh.size());
    let barrier = Barrier::new(worlds.len());
    let ranks: Vec<Result<RankStory, Error>> = thread::scope(|scope| {
        let start = |world| scope.spawn(|| rank(store, model, world, &barrier));
        let running: Vec<_> = worlds.into_iter().map(start).collect();
        let joined = running.into_iter().map(|rank| rank.join());
        joined
            .map(|rank| rank.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let (mut stall, mut saving, mut refused) = (Duration::ZERO, Duration::ZERO, None);
    for rank in ranks {
        let rank = rank?;
        stall = stall.max(rank.stall);
        saving = saving.max(rank.committed);
        refused = refused.or(rank.refused);
    }
    Ok((stall, saving, refused.unwrap_or_default()))
}

/// What one rank saw.
#[derive(Debug)]
struct RankStory {
    stall: Duration,
    committed: Duration,
    refused: Option<String>,
}

/// The life of one rank.
fn rank(
    store: &Arc<dyn Store>,
    model: &Model,
    world: World,
    barrier: &Barrier,
) -> Result<RankStory, Error> {
    let rank = world.rank();
    let mut options = Options {
        capture_threads: 1,
        ..Options::default()
    };
    let run = Checkpointer::with_options(store.clone(), world.clone(), options.clone());
    // The first save makes the memory that every later one finds; the last is the one to measure.
    for step in 1..SAVED_STEP {
        save(&run, model, rank, step, barrier)?;
    }
    let mut story = save(&run, model, rank, SAVED_STEP, barrier)?;
    let memory = model.trained(rank, LOST_STEP);
    barrier.wait();
    if rank == LOST_RANK {
        return Ok(story);
    }
    options.commit_timeout = PATIENCE;
    let run = Checkpointer::with_options(store.clone(), world, options);
    let saving = run.save(
        LOST_STEP,
        &model.state(rank, &memory)?,
        &SaveOptions::default(),
    )?;
    story.refused = saving.wait().err().map(|error| error.to_string());
    Ok(story)
}

/// Trains up to a step and saves it.
fn save(
    run: &Checkpointer,
    model: &Model,
    rank: usize,
    step: u64,
    barrier: &Barrier,
) -> Result<RankStory, Error> {
    let memory = model.trained(rank, step);
    barrier.wait();
    let saving = run.save(step, &model.state(rank, &memory)?, &SaveOptions::default())?;
    // The state is captured and may change. The next step waits for the commit all the same: these ranks train on the cores that
    // the writers need and give way on, so the disk would not be what is measured.
    drop(memory);
    let report = saving.wait()?;
    barrier.wait();
    Ok(RankStory {
        stall: saving.stall(),
        committed: report.committed,
        refused: None,
    })
}

/// Loads the newest good step on another mesh, all ranks together.
fn load(
    store: &Arc<dyn Store>,
    model: &Model,
    memory: &mut [Memory],
) -> Result<(Duration, f64), Error> {
    let run = Checkpointer::new(store.clone(), World::single());
    let mut targets = Vec::new();
    for (rank, memory) in memory.iter_mut().enumerate() {
        targets.extend(model.targets(rank, memory)?);
    }
    let start = Instant::now();
    let (_, report) = run.load_latest(targets, &LoadOptions::default())?;
    Ok((start.elapsed(), report.cost.over_read()))
}

/// Compares what was loaded with the state that the same steps give without any checkpoint.
fn compare(model: &Model, memory: &[Memory]) -> (u64, Vec<String>) {
    let compared = memory
        .iter()
        .flat_map(Memory::values)
        .map(|bytes| bytes.len() as u64)
        .sum();
    let differing = thread::scope(|scope| {
        let check = |(rank, loaded): (usize, &'_ Memory)| {
            let expected = model.trained(rank, SAVED_STEP);
            let names = loaded
                .iter()
                .filter(|(name, bytes)| expected[*name] != **bytes);
            names
                .map(|(name, _)| format!("{name} on rank {rank}"))
                .collect::<Vec<_>>()
        };
        let running: Vec<_> = memory
            .iter()
            .enumerate()
            .map(|rank| scope.spawn(move || check(rank)))
            .collect();
        let joined = running.into_iter().map(|rank| rank.join());
        joined
            .flat_map(|rank| rank.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    (compared, differing)
}

impl Outcome {
    fn save_share(&self) -> f64 {
        self.before.len_bytes() as f64 / self.saving.as_secs_f64() / self.ceiling.write
    }

    fn load_share(&self) -> f64 {
        self.after.len_bytes() as f64 / self.loading.as_secs_f64() / self.ceiling.read
    }

    /// Whether every bit came back.
    pub(super) fn holds(&self) -> bool {
        self.differing.is_empty()
    }

    pub(super) fn table(&self, printer: &Printer) -> String {
        let bytes = self.before.len_bytes();
        let rate = |time: Duration| format!("{:.2} GB/s", bytes as f64 / 1e9 / time.as_secs_f64());
        let mut table = Table::facts();
        table.fact(
            "state",
            format!(
                "{} parameters with AdamW state, {} in {}, {} ranks on {}",
                count(self.before.parameters()),
                size(bytes),
                plural(self.before.specs.len(), "tensor"),
                self.before.mesh.size(),
                self.before.mesh
            ),
        );
        table.fact(
            "plan",
            format!(
                "{:.2} ms for a rank, by itself",
                self.planning.as_secs_f64() * 1e3
            ),
        );
        table.fact(
            "stall",
            format!("{} ms until training went on", self.stall.as_millis()),
        );
        table.fact(
            "save",
            format!(
                "{:.2} s until committed, {}: {:.0} % of the disk's {:.2} GB/s",
                self.saving.as_secs_f64(),
                rate(self.saving),
                100.0 * self.save_share(),
                self.ceiling.write / 1e9
            ),
        );
        table.fact(
            "lost",
            format!(
                "rank {LOST_RANK}, so step {LOST_STEP} was not committed: {}",
                self.refused
            ),
        );
        table.fact("load", format!(
            "{:.2} s on {} ({} ranks), {}: {:.0} % of the disk's {:.2} GB/s, {:.3} bytes read per byte wanted",
            self.loading.as_secs_f64(), self.after.mesh, self.after.mesh.size(), rate(self.loading),
            100.0 * self.load_share(), self.ceiling.read / 1e9, self.over_read
        ));
        let verdict = match self.differing.is_empty() {
            true => cell(
                Style::Green,
                format!(
                    "{} on {} ranks: every bit as if nothing had happened",
                    size(self.compared),
                    self.after.mesh.size()
                ),
            ),
            false => cell(
                Style::Red,
                format!(
                    "{} differ: {}",
                    plural(self.differing.len(), "tensor"),
                    self.differing.join(", ")
                ),
            ),
        };
        table.fact("compare", verdict);
        table.render(printer.paint())
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "state_bytes": self.before.len_bytes(),
            "parameters": self.before.parameters(),
            "tensors": self.before.specs.len(),
            "mesh_before": self.before.mesh.to_string(),
            "mesh_after": self.after.mesh.to_string(),
            "plan_seconds": self.planning.as_secs_f64(),
            "stall_seconds": self.stall.as_secs_f64(),
            "save_seconds": self.saving.as_secs_f64(),
            "save_share_of_disk": self.save_share(),
            "load_seconds": self.loading.as_secs_f64(),
            "load_share_of_disk": self.load_share(),
            "over_read": self.over_read,
            "disk_write_bytes_per_second": self.ceiling.write,
            "disk_read_bytes_per_second": self.ceiling.read,
            "lost_rank": LOST_RANK,
            "uncommitted": self.refused,
            "compared_bytes": self.compared,
            "differing": self.differing,
        })
    }
}
