//! Whose run it is.

use super::Keeper;
use crate::error::Error;
use cairn_checkpoint::{Error as CheckpointError, Lease, LeaseRequest, machine_clock};
use std::sync::atomic::AtomicBool;

impl Keeper {
    /// Takes the run for this launch; only rank 0 does.
    pub(super) fn claim(&mut self, take_over: bool, stop: &AtomicBool) -> Result<(), Error> {
        let request = LeaseRequest {
            launch: self.world.session(),
            take_over,
            stop,
            clock: machine_clock(),
        };
        let store = self.checkpointer.store();
        let taken = match store.tiers() {
            None => Lease::take(store.clone(), &request),
            Some(tiers) => match Lease::take(tiers.durable().clone(), &request) {
                // Training need not wait for a durable tier that is away.
                Err(CheckpointError::Store { source, .. }) if source.is_retryable() => {
                    tracing::warn!(error = %source, "whose run it is can be said on the fast tier only");
                    Lease::take(tiers.fast().clone(), &request)
                }
                taken => taken,
            },
        };
        let lease = taken.map_err(|error| match error {
            CheckpointError::Store { source, .. } => Error::Unwritable {
                url: store.url(),
                source,
            },
            other => other.into(),
        })?;
        // On tiers, and with a keeper, somebody may still finish what a killed launch began.
        if store.tiers().is_none()
            && !self.is_kept
            && let Err(error) = lease.clear_leftovers()
        {
            tracing::warn!(error = %error, "what killed launches left stays for now");
        }
        self.lease = Some(lease);
        Ok(())
    }

    /// Who took the run from this launch, if somebody did.
    pub(in crate::trainer) fn lost_to(&self) -> Option<String> {
        self.lease.as_ref().and_then(Lease::lost_to)
    }
}
