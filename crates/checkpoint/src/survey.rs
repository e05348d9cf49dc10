//! The state of a step, whatever it is: whole, damaged or never finished.

use crate::Error;
use crate::checkpoint::Checkpoint;
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
    /// Committed by a newer version of Cairn.
    TooNew(Error),
}

/// Looks at `step`: its structure always, and about `fraction` of its bytes. `progress` is told of bytes as they are read.
///
/// # Errors
/// Only if the step cannot be looked at; damage is a state.
pub fn survey(
    store: &Arc<dyn Store>,
    step: u64,
    fraction: f64,
    progress: &dyn Fn(u64),
) -> Result<StepState, Error> {
    let checkpoint = match Checkpoint::open(store.clone(), step) {
        Ok(checkpoint) => Box::new(checkpoint),
        Err(Error::Incomplete { .. }) => {
            return unfinished(store.as_ref(), step).map(StepState::Incomplete);
        }
        Err(error @ Error::Version { .. }) => return Ok(StepState::TooNew(error)),
        Err(error) if error.is_damage() => {
            let report = VerifyReport {
                damage: vec![error],
                ..VerifyReport::default()
            };
            return Ok(StepState::Damaged(None, report));
        }
        Err(error) => return Err(error),
    };
    let report = verify(&checkpoint, fraction, progress)?;
    Ok(match report.damage.is_empty() {
        true => StepState::Whole(checkpoint, report),
        false => StepState::Damaged(Some(checkpoint), report),
    })
}
