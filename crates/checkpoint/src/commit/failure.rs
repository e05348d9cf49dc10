//! How writers tell each other that an attempt is given up.

use super::{Attempt, Supersedes};
use crate::Error;
use crate::error::{StoreContext, chain};
use crate::names::AttemptKeys;
use cairn_store::{PutMode, Store};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the first writer that gave up leaves for the others.
#[derive(Debug, Serialize, Deserialize)]
struct Failure {
    writer: usize,
    message: String,
    /// Whether it passed the step over on purpose.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    skipped: bool,
    /// The attempt that holds the step, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taken: Option<String>,
    /// The writers it waited for in vain, and how long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<usize>,
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    waited: Duration,
}

impl Failure {
    /// What was left by a writer that gave up, if one did.
    fn read(store: &dyn Store, keys: &AttemptKeys) -> Result<Option<Self>, Error> {
        let key = keys.failed();
        let bytes = match store.get(&key) {
            Err(cairn_store::Error::NotFound { .. }) => return Ok(None),
            result => result.doing(|| format!("read `{key}`"))?,
        };
        let failure = serde_json::from_slice(&bytes).unwrap_or_else(|_| Self {
            writer: 0,
            message: "for a reason that cannot be read".into(),
            skipped: false,
            taken: None,
            missing: Vec::new(),
            waited: Duration::ZERO,
        });
        Ok(Some(failure))
    }
}

/// Whether the writers of an attempt gave it up because some did not come.
pub(crate) fn missed_writers(store: &dyn Store, keys: &AttemptKeys) -> Result<bool, Error> {
    let failure = Failure::read(store, keys)?;
    Ok(failure.is_some_and(|failure| !failure.missing.is_empty()))
}

impl Attempt {
    /// Whether this attempt was given up, as `writer` has to be told.
    pub(super) fn check_failure(&self, store: &dyn Store, writer: usize) -> Result<(), Error> {
        let Some(failure) = Failure::read(store, &self.keys())? else {
            return Ok(());
        };
        if let Some(attempt) = failure.taken {
            let step = self.step;
            return Err(Error::StepTaken { step, attempt });
        }
        let (missing, waited) = (failure.missing, failure.waited);
        if missing.contains(&writer) {
            let seconds = waited.as_secs();
            return Err(Error::WriterFailed {
                step: self.step,
                writer: failure.writer,
                message: format!("it waited {seconds} s for this one and gave up"),
            });
        }
        if !missing.is_empty() {
            let step = self.step;
            return Err(Error::WritersMissing {
                step,
                missing,
                waited,
            });
        }
        if failure.skipped {
            let (step, reason) = (self.step, failure.message);
            return Err(Error::Skipped { step, reason });
        }
        Err(Error::WriterFailed {
            step: self.step,
            writer: failure.writer,
            message: failure.message,
        })
    }

    /// Tells the other writers that this one gave up. Best effort: on a full disk they find out by their deadline.
    pub(crate) fn report_failure(&self, store: &dyn Store, writer: usize, error: &Error) {
        let taken = match error {
            // Where nothing can be superseded, the others see that for themselves.
            Error::StepTaken { .. } if self.supersedes == Supersedes::Nothing => return,
            Error::StepTaken { attempt, .. } => Some(attempt.clone()),
            _ => None,
        };
        let (missing, waited) = match error {
            Error::WritersMissing {
                missing, waited, ..
            } => (missing.clone(), *waited),
            _ => (Vec::new(), Duration::ZERO),
        };
        let failure = Failure {
            writer,
            message: chain(error),
            skipped: matches!(error, Error::Skipped { .. }),
            taken,
            missing,
            waited,
        };
        let bytes = serde_json::to_vec(&failure).expect("a failure is JSON");
        if let Err(error) = store.put(&self.keys().failed(), &bytes, PutMode::Create) {
            tracing::debug!(%error, "could not leave a note of the failure");
        }
    }
}
