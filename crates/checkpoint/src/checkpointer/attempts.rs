//! Which attempt at a step is the next one, and what ends it before it begins.

use super::{Checkpointer, Inner};
use crate::Error;
use crate::commit::{Attempt, Supersedes};
use crate::error::chain;
use crate::names::attempt_name;
use crate::save::SaveOptions;
use crate::sync::PoisonError;

impl Checkpointer {
    /// Tells the other writers of `step` that this rank will not save it, so that they do not wait for it.
    ///
    /// # Collective
    /// Takes the place of this rank's `save` of the step: the next attempt at it is a new one for all ranks.
    pub fn give_up(&self, step: u64, reason: &str) {
        self.give_up_attempt(step, self.attempts(step), reason);
    }

    /// How many attempts at `step` this rank has made or given up.
    pub fn attempts(&self, step: u64) -> u64 {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.started.get(&step).copied().unwrap_or(0)
    }

    /// As [`Checkpointer::give_up`], of the attempt with that number, which may have begun: [`Checkpointer::attempts`] was `attempt` before.
    pub fn give_up_attempt(&self, step: u64, attempt: u64, reason: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let launch = self.launch(&mut inner);
        let begun = inner.started.entry(step).or_default();
        *begun = (*begun).max(attempt + 1);
        match launch {
            Ok(launch) => {
                let attempt = self.attempt_of(launch, step, attempt, &SaveOptions::default());
                let reason = reason.to_string();
                self.report_failure(&attempt, &Error::GivenUp { reason });
            }
            Err(error) => {
                tracing::warn!(step, error = %chain(&error), "the other ranks were not told that a save was given up");
            }
        }
    }

    /// The next attempt at `step`.
    pub(super) fn attempt(
        &self,
        inner: &mut Inner,
        step: u64,
        options: &SaveOptions,
    ) -> Result<Attempt, Error> {
        // Ranks that did not find each other count this attempt, too: the next one may be of another moment.
        let launch = self.launch(inner).inspect_err(|_| {
            *inner.started.entry(step).or_default() += 1;
        })?;
        let count = inner.started.get(&step).copied().unwrap_or(0);
        Ok(Attempt {
            supersedes: Self::may_supersede(inner),
            ..self.attempt_of(launch, step, count, options)
        })
    }

    fn attempt_of(&self, launch: String, step: u64, count: u64, options: &SaveOptions) -> Attempt {
        Attempt {
            step,
            name: attempt_name(&launch, step, count),
            world: self.world.size(),
            if_committed: options.if_committed,
            launch: Some(launch),
            supersedes: Supersedes::Nothing,
        }
    }
}
