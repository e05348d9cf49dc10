//! The loop: step after step, from wherever a run is.

mod average;
mod build;
mod compare;
mod evaluate;
mod keeper;
mod resume;
mod verdict;

pub use resume::Resumed;

use crate::Error;
use crate::ahead::Ahead;
use crate::data::{Data, Shares, counts};
use crate::executor::{Executor, Round};
use crate::parallel::Layout;
use crate::report::{Ending, Event, Progress, StepReport};
use crate::settings::Settings;
use cairn_arena::{Arena, Hyper, Schedule};
use cairn_collectives::{Communicator, numbers};
use cairn_kernels::Pool;
use cairn_model::{Batch, Block};
use cairn_store::Store;
use cairn_tensor::ReduceOp;
use keeper::Keeper;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// All that one rank needs to train.
pub struct Job {
    /// What was chosen.
    pub settings: Settings,
    /// All ranks of the run.
    pub world: Arc<dyn Communicator>,
    /// The threads of this rank.
    pub pool: Pool,
    /// All blocks of the model, in order; the rank takes its own.
    pub blocks: Vec<Box<dyn Block<f32>>>,
    /// Where its sequences come from.
    pub data: Box<dyn Data>,
    /// Where checkpoints go, if anywhere.
    pub checkpoints: Option<Home>,
    /// Whether somebody asks the run to stop; all ranks do so after the same step.
    pub stop: Arc<AtomicBool>,
}

/// Where the checkpoints of a run are.
#[derive(Debug, Clone)]
pub struct Home {
    /// The store that is rooted at the folder of the run.
    pub store: Arc<dyn Store>,
    /// How saves behave.
    pub options: cairn_checkpoint::Options,
    /// Small files that travel with every step, such as the model's `config.json`.
    pub assets: BTreeMap<String, Vec<u8>>,
}

/// Who hears how a run goes, and may do something in between, such as [`Trainer::evaluate`], on all ranks alike.
pub type Listener<'a> = dyn FnMut(&mut Trainer, Event<'_>) -> Result<(), Error> + 'a;

/// One rank of a run.
///
/// Every rank makes the same calls in the same order: all methods that are not plain looks are collective.
pub struct Trainer {
    settings: Settings,
    layout: Layout,
    executor: Executor,
    arena: Arena,
    ahead: Ahead,
    /// What the data is made of, if it says.
    fingerprint: Option<Value>,
    shares: Shares,
    rates: Schedule,
    progress: Progress,
    keeper: Option<Keeper>,
    stop: Arc<AtomicBool>,
    /// What checkpoints cost since the last step.
    stall: Duration,
    /// What is known of this step, and saved with it.
    metrics: BTreeMap<&'static str, f64>,
}

impl fmt::Debug for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Trainer");
        text.field("layout", &self.layout)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

impl Trainer {
    /// One rank of a run, before its first step: weights are random.
    ///
    /// # Collective
    /// # Errors
    /// All that is wrong with the settings, or if a rank does not come along.
    pub fn new(job: Job) -> Result<Self, Error> {
        build::trainer(job)
    }

    /// Where the run is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Where this rank stands.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What was chosen.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The memory of this rank.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Makes one step.
    ///
    /// # Collective
    /// # Errors
    /// If the data has something wrong, a rank does not come along, or too many steps in a row were skipped.
    pub fn step(&mut self) -> Result<StepReport, Error> {
        let begun = Instant::now();
        let left = self.settings.steps.saturating_sub(self.progress.step);
        let step = self.ahead.step(self.progress.consumed_samples, left)?;
        let mut counts = counts(&step.batches);
        numbers::all_reduce(self.layout.dp.as_ref(), ReduceOp::Sum, &mut counts)?;
        let [counted, tokens] = counts;
        let round = self.round(&step.batches, counted);
        let losses = self.executor.train(&mut self.arena, round)?;
        let asked = f64::from(u8::from(self.stop.load(Ordering::Relaxed)));
        let lost = self.keeper.as_ref().and_then(Keeper::lost_to);
        let is_lost = f64::from(u8::from(lost.is_some()));
        let mut sums = [self.sum(&losses), asked, is_lost];
        numbers::all_reduce(self.layout.world.as_ref(), ReduceOp::Sum, &mut sums)?;
        if sums[2] > 0.0 {
            return Err(Error::TakenOver { by: lost });
        }
        let loss = sums[0] / counted.max(1) as f64;
        let learning_rate = self.rates.at(self.progress.step);
        self.fence()?;
        let outcome = self.arena.step(&Hyper {
            learning_rate,
            weight_decay: self.settings.optimizer.weight_decay(),
            clip: self.settings.clip,
            skip: !loss.is_finite(),
        })?;
        self.advance(step.places.end, tokens.unsigned_abs(), outcome.skipped);
        self.average()?;
        self.metrics = [("loss", loss)].into();
        let report = StepReport {
            step: self.progress.step,
            loss,
            gradient_norm: outcome.gradient_norm,
            learning_rate,
            tokens: tokens.unsigned_abs(),
            skipped: outcome.skipped,
            seconds: begun.elapsed().as_secs_f64(),
            stall: std::mem::take(&mut self.stall),
            stop: sums[1] > 0.0,
        };
        tracing::debug!(step = report.step, loss = report.loss, "step");
        match self.progress.skipped_in_a_row > self.settings.max_skipped {
            true => Err(Error::NotFinite {
                step: report.step,
                skipped: self.progress.skipped_in_a_row,
            }),
            false => Ok(report),
        }
    }

    /// Makes steps until all are done or a rank is asked to stop, saves as the settings say, and tells `each` how it goes.
    ///
    /// The last step is saved before it returns.
    ///
    /// # Collective
    /// # Errors
    /// As [`step`](Self::step); if nothing can be written where checkpoints go, before the first step; or if the last step cannot be saved. A save before
    /// that fails is told, and the next is tried, as often in a row as the settings allow.
    pub fn run(&mut self, each: &mut Listener<'_>) -> Result<Ending, Error> {
        let mut ending = Ending::Finished;
        let is_first = self.layout.world.rank() == 0;
        if let Some(keeper) = self.keeper.as_mut().filter(|_| is_first)
            && self.progress.step < self.settings.steps
        {
            keeper.check_writable()?;
        }
        while self.progress.step < self.settings.steps {
            let report = self.step()?;
            each(self, Event::Step(&report))?;
            if report.stop {
                ending = Ending::Stopped;
                break;
            }
            if self.is_time_to_save() {
                self.try_save(each)?;
            }
        }
        if self.keeper.is_some() {
            self.finish()?;
        }
        Ok(ending)
    }

    fn round<'a>(&self, batches: &'a [Batch], counted: i64) -> Round<'a> {
        Round {
            batches,
            seed: self.progress.seed,
            step: self.progress.step,
            scale: 1.0 / counted.max(1) as f32,
            training: true,
            predicts: false,
        }
    }

    /// The sum of the losses of a pass, on one of the ranks that know them; 0 on the others.
    fn sum(&self, losses: &[Vec<f32>]) -> f64 {
        let losses = losses.iter().flatten().map(|loss| f64::from(*loss));
        match self.layout.tp.rank() {
            0 => losses.sum(),
            _ => 0.0,
        }
    }

    fn advance(&mut self, consumed_samples: u64, tokens: u64, skipped: bool) {
        let progress = &mut self.progress;
        progress.step += 1;
        progress.consumed_samples = consumed_samples;
        progress.consumed_tokens += tokens;
        progress.skipped += u64::from(skipped);
        progress.skipped_in_a_row = match skipped {
            true => progress.skipped_in_a_row + 1,
            false => 0,
        };
    }
}
