//! Which attempt at a step is the next one, and what ends it before it begins.

use super::{Checkpointer, Inner};
use crate::Error;
use crate::commit::Attempt;
use crate::names::attempt_name;
use crate::save::SaveOptions;
use crate::sync::PoisonError;

impl Checkpointer {
    /// Tells the other writers of `step` that this rank will not save it, so that they do not wait for it.
    ///
    /// # Collective
    /// Takes the place of this rank's `save` of the step: the next attempt at it is a new one for all ranks.
    pub fn give_up(&self, step: u64, reason: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = self.attempt(&inner, step, &SaveOptions::default());
        *inner.started.entry(step).or_default() += 1;
        let reason = reason.to_string();
        self.report_failure(&attempt, &Error::GivenUp { reason });
    }

    pub(super) fn attempt(&self, inner: &Inner, step: u64, options: &SaveOptions) -> Attempt {
        let count = inner.started.get(&step).copied().unwrap_or(0);
        Attempt {
            step,
            name: attempt_name(self.world.session(), step, count),
            world: self.world.size(),
            if_committed: options.if_committed,
        }
    }
}
