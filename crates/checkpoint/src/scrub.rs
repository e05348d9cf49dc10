//! Reads all bytes of a run again, slowly, so that damage is found while there is a good copy to mend it from.
//!
//! A pass goes over the steps in order, and over the files of each. Where it stands is kept in the run, under `SCRUB`: a pass that is cut
//! short, by a deadline or by a crash, goes on there. Steps that come meanwhile are part of the pass, steps that go are not missed.

mod record;

pub use record::{Position, Record, SCRUB};

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::error::chain;
use crate::pace::Pace;
use crate::pool::CHUNK_BYTES;
use crate::run::committed_steps;
use crate::source::Source;
use crate::verify::{Sizes, check_header, check_stretch, check_writer, sizes, stretch_buffer};
use cairn_store::Store;
use std::ops::ControlFlow;
use std::sync::Arc;

/// After how many bytes the position is kept.
const KEEP_AFTER_BYTES: u64 = 256 << 20;

/// How a run is scrubbed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScrubOptions {
    /// The most bytes read in a second; as fast as they come if not given.
    pub bytes_per_second: Option<u64>,
    /// Begin a new pass even if one was cut short.
    pub restart: bool,
}

/// Goes on with a pass over the run in `store`, or begins one, until it is over or `is_enough` says so. `progress` is told of bytes as
/// they are read.
///
/// # Crash safety
/// The run is not changed, but for the record of the pass.
///
/// # Errors
/// Only if the run cannot be looked at, or the record not be written; damage is in the record.
pub fn scrub(
    store: &Arc<dyn Store>,
    options: &ScrubOptions,
    is_enough: &dyn Fn() -> bool,
    progress: &dyn Fn(u64),
) -> Result<Record, Error> {
    let record = match options.restart {
        true => Record::begin(),
        false => Record::read(store.as_ref())?,
    };
    let mut pass = Pass {
        store,
        pace: options.bytes_per_second.map(Pace::new),
        is_enough,
        progress,
        record,
        unsaved: 0,
    };
    let outcome = pass.run()?;
    if outcome.is_continue() {
        pass.record.end();
    }
    pass.record.write(store.as_ref())?;
    Ok(pass.record)
}

/// A pass on its way.
struct Pass<'a> {
    store: &'a Arc<dyn Store>,
    pace: Option<Pace>,
    is_enough: &'a dyn Fn() -> bool,
    progress: &'a dyn Fn(u64),
    record: Record,
    /// The bytes since the position was kept.
    unsaved: u64,
}

/// Whether a pass goes on.
type Flow = Result<ControlFlow<()>, Error>;

impl Pass<'_> {
    fn run(&mut self) -> Flow {
        let from = self.record.position.clone().unwrap_or_default();
        let steps = committed_steps(self.store.as_ref())?;
        for step in steps.into_iter().filter(|step| *step >= from.step) {
            let checkpoint = match Checkpoint::open(self.store.clone(), step) {
                Ok(checkpoint) => checkpoint,
                Err(error) => {
                    self.note(step, error)?;
                    continue;
                }
            };
            let attempt = checkpoint.manifest().attempt.clone();
            // A step that was saved anew is looked at from its beginning.
            let (writer, offset) = match from.step == step && from.attempt == attempt {
                true => (from.writer, from.offset),
                false => (0, 0),
            };
            if self.step(&checkpoint, writer, offset)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.record.steps += 1;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn step(&mut self, checkpoint: &Checkpoint, writer: usize, offset: u64) -> Flow {
        let sizes = sizes(checkpoint)?;
        for at in writer..checkpoint.manifest().writers() {
            let offset = if at == writer { offset } else { 0 };
            match self.file(checkpoint, at, offset, &sizes) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
                Err(error) => self.note(checkpoint.step(), checkpoint.explain(error))?,
            }
        }
        if let Err(error) = checkpoint.assets() {
            self.note(checkpoint.step(), error)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn file(&mut self, checkpoint: &Checkpoint, writer: usize, offset: u64, sizes: &Sizes) -> Flow {
        let Some(entry) = check_writer(checkpoint, writer, sizes)? else {
            return Ok(ControlFlow::Continue(()));
        };
        check_header(checkpoint, writer, &entry)?;
        let file = checkpoint.open_file(writer)?;
        let mut buffer = stretch_buffer(file.reader.len(), CHUNK_BYTES);
        for offset in (offset..file.reader.len()).step_by(CHUNK_BYTES) {
            if (self.is_enough)() {
                self.stand_at(checkpoint, writer, offset);
                return Ok(ControlFlow::Break(()));
            }
            if let Some(pace) = &self.pace {
                pace.wait_for((file.reader.len() - offset).min(CHUNK_BYTES as u64));
            }
            let (len, damage) = check_stretch(checkpoint, writer, &file, offset, &mut buffer)?;
            (self.progress)(len);
            self.record.checked_bytes += len;
            for error in damage {
                self.note(checkpoint.step(), error)?;
            }
            self.unsaved += len;
            if self.unsaved >= KEEP_AFTER_BYTES {
                self.stand_at(checkpoint, writer, offset + len);
                self.record.write(self.store.as_ref())?;
                self.unsaved = 0;
            }
        }
        self.record.files += 1;
        Ok(ControlFlow::Continue(()))
    }

    fn stand_at(&mut self, checkpoint: &Checkpoint, writer: usize, offset: u64) {
        self.record.position = Some(Position {
            step: checkpoint.step(),
            attempt: checkpoint.manifest().attempt.clone(),
            writer,
            offset,
        });
    }

    /// Damage is what is looked for, and steps may go at any time; anything else ends the pass.
    fn note(&mut self, step: u64, error: Error) -> Result<(), Error> {
        match error {
            Error::Deleted { .. } | Error::Incomplete { .. } => Ok(()),
            Error::Version { .. } => {
                self.record.add(step, chain(&error));
                Ok(())
            }
            error if error.is_damage() => {
                tracing::warn!(step, error = %chain(&error), "damage found");
                self.record.add(step, chain(&error));
                Ok(())
            }
            error => Err(error),
        }
    }
}
