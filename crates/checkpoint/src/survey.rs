//! The state of a step, whatever it is: whole, damaged or never finished.

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::run::open_trusted;
use crate::sample::Sample;
use crate::signing::PublicKey;
use crate::verify::{Unfinished, VerifyReport, unfinished, verify};
use cairn_store::Store;
use std::sync::Arc;

/// What a look at one step found.
#[derive(Debug)]
pub enum StepState {
    /// Committed, and everything looked at is as it was written.
    Whole(Box<Checkpoint>, VerifyReport),
    /// Committed, but not all of it is what was written. There is no checkpoint if the manifest itself is damaged.
    Damaged(Option<Box<Checkpoint>>, VerifyReport),
    /// Never committed; what its attempts lack.
    Incomplete(Vec<Unfinished>),
    /// Deleted, but for its files.
    Deleted,
    /// Not signed by the key that is required, or not as it is.
    Untrusted(Error),
    /// Committed by a newer version of Cairn.
    TooNew(Error),
}

/// As [`survey`], and requires that `key` signed the step.
///
/// # Errors
/// As [`survey`].
pub fn survey_signed(
    store: &Arc<dyn Store>,
    step: u64,
    key: &PublicKey,
    sample: impl Into<Sample>,
    progress: &dyn Fn(u64),
) -> Result<StepState, Error> {
    match look(store, step, Some(key), sample.into(), progress) {
        Err(error @ Error::Untrusted { .. }) => Ok(StepState::Untrusted(error)),
        result => result,
    }
}

/// Looks at `step`: its structure always, and a sample of its bytes. `progress` is told of bytes as they are read.
///
/// # Errors
/// Only if the step cannot be looked at; damage is a state.
pub fn survey(
    store: &Arc<dyn Store>,
    step: u64,
    sample: impl Into<Sample>,
    progress: &dyn Fn(u64),
) -> Result<StepState, Error> {
    look(store, step, None, sample.into(), progress)
}

fn look(
    store: &Arc<dyn Store>,
    step: u64,
    key: Option<&PublicKey>,
    sample: Sample,
    progress: &dyn Fn(u64),
) -> Result<StepState, Error> {
    let checkpoint = match open_trusted(store, step, key) {
        Ok(checkpoint) => Box::new(checkpoint),
        Err(Error::Incomplete { .. }) => {
            return unfinished(store.as_ref(), step).map(StepState::Incomplete);
        }
        Err(Error::Deleted { .. }) => return Ok(StepState::Deleted),
        Err(error @ (Error::Version { .. } | Error::Needs { .. })) => {
            return Ok(StepState::TooNew(error));
        }
        Err(error) if error.is_damage() => {
            let report = VerifyReport {
                damage: vec![error],
                ..VerifyReport::default()
            };
            return Ok(StepState::Damaged(None, report));
        }
        Err(error) => return Err(error),
    };
    let report = verify(&checkpoint, sample, progress)?;
    Ok(match report.damage.is_empty() {
        true => StepState::Whole(checkpoint, report),
        false => StepState::Damaged(Some(checkpoint), report),
    })
}
