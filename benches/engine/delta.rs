//! Saves that write only what changed, beside saves of the same state in full.

use crate::measure::{compared, extra, timed, value};
use crate::work::{Layout, Specs, allocate, fill, len_bytes};
use crate::{Job, files};
use cairn::checkpoint::{Checkpointer, Options, SaveOptions, State, World, step_folder};
use cairn::store::{AlignedBuffer, Local};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The bytes that change in a run that trains adapters: one in so many.
const FEW: u64 = 100;

/// Saves by one process: in full, as a delta of which everything changed, and as one of which little did.
pub(crate) fn measure(job: &Job) {
    let specs = Layout::Rows(1).specs(job.gigabytes);
    let bytes = len_bytes(&specs);
    let mut memory = Memory {
        tensors: allocate(&specs, 0),
        specs,
        generation: 0,
    };
    let mut plain = Run::new(job, "full", false);
    let mut delta = Run::new(job, "deltas", true);
    let mut written = 0;
    let [full, all, few] = compared(|kind| {
        memory.change(bytes);
        match kind {
            0 => plain.save_alone(&memory),
            1 => delta.save_alone(&memory),
            _ => {
                // A run that begins in full, as every run does.
                let mut run = Run::new(job, "few", true);
                run.save(&memory);
                memory.change(bytes / FEW);
                let (seconds, len) = run.save(&memory);
                written = len;
                run.remove();
                seconds
            }
        }
    });
    let what = "delta save, 1 % of the bytes changed";
    let ratio = written as f64 / bytes as f64;
    value(
        &format!("{what}: bytes written for each of the state"),
        "ratio",
        ratio,
        0.02,
    );
    let taken = 1.0 + extra(&few, &full);
    value(&format!("{what}: time of a full save"), "ratio", taken, 0.5);
    let cost = extra(&all, &full);
    value("delta save, everything changed: cost", "ratio", cost, 0.05);
    plain.remove();
    delta.remove();
}

/// A run of one process.
struct Run {
    folder: PathBuf,
    checkpointer: Checkpointer,
    step: u64,
}

impl Run {
    fn new(job: &Job, name: &str, delta: bool) -> Self {
        let folder = job.directory.join(name);
        files::remove(&folder);
        let options = Options {
            delta,
            ..Options::default()
        };
        let store = Arc::new(Local::new(&folder));
        Self {
            folder,
            checkpointer: Checkpointer::with_options(store, World::single(), options),
            step: 0,
        }
    }

    /// Saves the next step, and returns the seconds it took and the bytes it wrote.
    fn save(&mut self, memory: &Memory) -> (f64, u64) {
        self.step += 1;
        let mut state = State::new(0);
        for (name, bytes) in &memory.tensors {
            let added = state.tensor(name, &memory.specs[name], bytes);
            added.expect("the rank's own part");
        }
        timed(|| {
            let options = SaveOptions::default();
            let saving = self.checkpointer.save(self.step, &state, &options);
            let report = saving.expect("captured").wait().expect("committed");
            report.len_bytes
        })
    }

    /// Saves a step that shares nothing with those before, which are removed.
    fn save_alone(&mut self, memory: &Memory) -> f64 {
        let (seconds, _) = self.save(memory);
        for step in 1..self.step {
            files::remove(&self.folder.join(step_folder(step)));
        }
        seconds
    }

    fn remove(&self) {
        files::remove(&self.folder);
    }
}

/// A state that changes.
struct Memory {
    specs: Specs,
    tensors: BTreeMap<String, AlignedBuffer>,
    /// How often it changed.
    generation: usize,
}

impl Memory {
    /// Makes each of the first so many bytes one that it was not before.
    fn change(&mut self, len_bytes: u64) {
        self.generation += 1;
        let mut left = usize::try_from(len_bytes).expect("it is in memory");
        for bytes in self.tensors.values_mut() {
            let len = left.min(bytes.len());
            fill(&mut bytes[..len], self.generation);
            left -= len;
        }
    }
}
