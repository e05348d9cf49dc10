//! The handle of a save that goes on in the background.

use crate::Error;
use crate::capture::{Fenced, Gate, Turns};
use crate::outcome::Outcome;
use crate::timeline::{Lane, Recorder, Timeline};
use crate::upload::Upload;
use cairn_device::Stream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What a finished save did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveReport {
    /// The step.
    pub step: u64,
    /// The attempt that holds it.
    pub attempt: String,
    /// The bytes this rank wrote.
    pub len_bytes: u64,
    /// The time to plan, next to none if the state had the same outline as the one before.
    pub planning: Duration,
    /// From the call of `save` until this rank's bytes were durable.
    pub durable: Duration,
    /// From the call of `save` until the step was committed; on tiers, until the fast one had it.
    pub committed: Duration,
    /// On tiers, from the call of `save` until the step was committed on the durable one.
    pub uploaded: Option<Duration>,
    /// Tensors of this rank with the same bytes as in the save before, by name.
    pub unchanged: Vec<String>,
    /// Where the time went.
    pub timeline: Arc<Timeline>,
}

/// How safe what was saved is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// All of it is captured: the state may change, but if the process dies now, it is lost.
    Staged,
    /// It is committed on the fast tier. Where each node has a fast tier of its own: this rank's files are on it.
    Local,
    /// It is committed on the durable tier, or on the only store there is.
    Durable,
}

/// How far a save is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) total: AtomicU64,
    pub(crate) written: Arc<AtomicU64>,
}

/// A save in the background. Dropping the handle does not stop it; its outcome is then reported by the next `save`.
#[derive(Debug, Clone)]
pub struct Saving {
    step: u64,
    planning: Duration,
    stall: Duration,
    progress: Arc<Progress>,
    gate: Arc<Gate>,
    recorder: Recorder,
    outcome: Arc<Outcome<SaveReport>>,
    /// Whether somebody looked at a failure.
    seen: Arc<AtomicBool>,
    /// What comes after the save, on tiers.
    upload: Option<Arc<Upload>>,
}

impl Saving {
    pub(crate) fn new(
        step: u64,
        planning: Duration,
        progress: Arc<Progress>,
        gate: Arc<Gate>,
        recorder: Recorder,
    ) -> Self {
        Self {
            step,
            planning,
            stall: Duration::ZERO,
            progress,
            gate,
            recorder,
            outcome: Arc::default(),
            seen: Arc::default(),
            upload: None,
        }
    }

    /// The same, to be uploaded when it is saved.
    pub(crate) fn with_upload(self, upload: Option<Upload>) -> Self {
        let upload = upload.map(Arc::new);
        Self { upload, ..self }
    }

    pub(crate) fn upload(&self) -> Option<&Arc<Upload>> {
        self.upload.as_ref()
    }

    /// A save that ended before it began.
    pub(crate) fn ended(step: u64, error: Error) -> Self {
        let gate = Gate::new(None, Turns::default());
        gate.end();
        let recorder = Recorder::new();
        let saving = Self::new(
            step,
            Duration::ZERO,
            Arc::default(),
            Arc::new(gate),
            recorder,
        );
        saving.finish(Err(error));
        saving
    }

    pub(crate) fn with_stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// Waits until the state may change again. Copies from devices need not be done for that: later work of the given streams of their
    /// devices waits for them there, while the caller goes on.
    ///
    /// If the capture failed there is nothing to wait for; the failure is told by [`Saving::wait`].
    ///
    /// # Errors
    /// If a device fails.
    pub fn fence(&self, streams: &[(String, Stream)]) -> Result<Fenced, Error> {
        self.pass(None, streams)
    }

    /// As [`Saving::fence`], for what was saved as [`Bytes::Fenced`](crate::Bytes::Fenced) with this turn: nothing else may change yet.
    ///
    /// # Errors
    /// If a device fails.
    pub fn fence_turn(&self, turn: u32, streams: &[(String, Stream)]) -> Result<Fenced, Error> {
        self.pass(Some(turn), streams)
    }

    fn pass(&self, turn: Option<u32>, streams: &[(String, Stream)]) -> Result<Fenced, Error> {
        if self.gate.is_captured() {
            return Ok(Fenced::default());
        }
        let span = self.recorder.span(Lane::Fence);
        let fenced = self.gate.fence(turn, streams);
        drop(span);
        if let Ok(Fenced {
            waited,
            reason: Some(reason),
        }) = &fenced
        {
            self.recorder
                .note(format!("the fence waited {waited:.1?}: {reason}"));
        }
        fenced
    }

    /// Whether every byte of the state was copied.
    pub fn is_captured(&self) -> bool {
        self.gate.is_captured()
    }

    /// Waits until every byte of the state was copied.
    pub fn wait_captured(&self) {
        self.gate.wait_captured();
    }

    /// Asks the save to stop. Nothing is committed, unless the commit is already under way.
    pub fn cancel(&self) {
        self.gate.cancel();
    }

    /// Whether the step was passed over, because the save before was not done.
    pub fn is_skipped(&self) -> bool {
        let skipped = |error: Arc<Error>| matches!(*error, Error::Skipped { .. });
        self.outcome
            .get()
            .and_then(Result::err)
            .is_some_and(skipped)
    }

    /// Waits until the step is committed: every writer's bytes are durable and readers see them. On tiers, on the durable one.
    ///
    /// # Errors
    /// Whatever stopped this writer, or another one, or the commit. Nothing is committed then. On tiers it may also be the failure of the last
    /// try to upload a step that is safe on the fast one; uploading goes on, and a later call may succeed.
    pub fn wait(&self) -> Result<SaveReport, Arc<Error>> {
        self.seen.store(true, Ordering::Relaxed);
        let mut report = self.peek()?;
        if let Some(upload) = &self.upload {
            report.uploaded = Some(upload.wait()?);
        }
        Ok(report)
    }

    /// Waits until what was saved is so safe.
    ///
    /// # Errors
    /// As [`Saving::wait`]; a capture that fails is told by every level but the first.
    pub fn wait_for(&self, level: Level) -> Result<(), Arc<Error>> {
        match level {
            Level::Staged => self.wait_captured(),
            Level::Local => {
                self.seen.store(true, Ordering::Relaxed);
                self.peek()?;
            }
            Level::Durable => {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// How safe what was saved is by now; nothing, if it is still being captured or could not be saved.
    pub fn level(&self) -> Option<Level> {
        let staged = self.is_captured().then_some(Level::Staged);
        let uploaded = self.upload.as_ref().map(|upload| upload.result());
        match (self.outcome.get(), uploaded) {
            (None, _) => staged,
            (Some(Err(_)), _) => None,
            (Some(Ok(_)), Some(None | Some(Err(_)))) => Some(Level::Local),
            (Some(Ok(_)), None | Some(Some(Ok(_)))) => Some(Level::Durable),
        }
    }

    /// Whether the save has ended, well or not; on tiers, whether the upload has, or has failed for now.
    pub fn is_done(&self) -> bool {
        self.has_settled(Level::Durable)
    }

    /// Whether [`Saving::wait_for`] this level would return at once, well or not.
    pub fn has_settled(&self, level: Level) -> bool {
        match (level, self.outcome.get()) {
            (Level::Staged, _) => self.is_captured(),
            (Level::Local, outcome) => outcome.is_some(),
            (Level::Durable, None) => false,
            (Level::Durable, Some(Err(_))) => true,
            (Level::Durable, Some(Ok(_))) => {
                let upload = self.upload.as_ref();
                upload.is_none_or(|upload| upload.result().is_some())
            }
        }
    }

    /// What the save did, if it has ended well where it was written. A failure stays unseen.
    pub fn outcome(&self) -> Option<SaveReport> {
        let mut report = self.outcome.get()?.ok()?;
        let uploaded = self.upload.as_ref().and_then(|upload| upload.result());
        report.uploaded = uploaded.and_then(Result::ok);
        Some(report)
    }

    /// The step being saved.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// How long `save` planned: next to nothing if the state had the same outline as the one before.
    pub fn planning(&self) -> Duration {
        self.planning
    }

    /// How long `save` held its caller.
    pub fn stall(&self) -> Duration {
        self.stall
    }

    /// The bytes of this rank that have been written, and all there are.
    pub fn progress(&self) -> (u64, u64) {
        let written = self.progress.written.load(Ordering::Relaxed);
        (written, self.progress.total.load(Ordering::Relaxed))
    }

    /// Waits until the save has ended, well or not. A failure stays unseen.
    pub fn join(&self) {
        if let (Ok(_), Some(upload)) = (self.peek(), &self.upload) {
            upload.join();
        }
    }

    /// Waits for the end of writing without counting as a look at it.
    pub(crate) fn peek(&self) -> Result<SaveReport, Arc<Error>> {
        self.outcome.wait()
    }

    /// The failure nobody has looked at yet, if there is one.
    pub(crate) fn unseen_failure(&self) -> Option<Arc<Error>> {
        let failure = self.peek().err()?;
        if matches!(*failure, Error::Skipped { .. } | Error::Cancelled) {
            // Wanted, so nobody need look at it.
            return None;
        }
        let seen = self.seen.swap(true, Ordering::Relaxed);
        (!seen).then_some(failure)
    }

    pub(crate) fn finish(&self, result: Result<SaveReport, Error>) {
        if let Err(Error::Skipped { .. } | Error::Cancelled) = &result {
            tracing::info!(
                step = self.step,
                "checkpoint not saved: skipped or cancelled"
            );
        } else if let Err(error) = &result {
            tracing::error!(step = self.step, error = %crate::error::chain(error), "checkpoint not saved");
        }
        self.outcome.set(result);
    }
}
