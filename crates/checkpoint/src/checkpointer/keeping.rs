//! Where a save puts its image: with a keeper if there is one, or else in memory of this process.

use super::Checkpointer;
use crate::commit::{Attempt, IfCommitted, Supersedes};
use crate::keeper::{Keeping, Snapshot};
use crate::pool::Pool;
use crate::save::PreparedSave;
use crate::state::State;
use cairn_device::{Device, Place};
use cairn_store::Store;
use std::sync::Arc;

/// The name of an attempt that is only asked for to have memory ready.
const PREPARING: &str = "prepare";

impl Checkpointer {
    /// Memory for the image of a save, and who keeps it.
    pub(super) fn room(
        &self,
        attempt: &Attempt,
        plan: &PreparedSave,
        state: &State,
    ) -> (Option<Box<dyn Keeping>>, Arc<Pool>) {
        let Some(mut kept) = self.begin_kept(attempt, plan, state) else {
            return (None, self.pool.clone());
        };
        let pool = Pool::image(kept.take_image(), kept.notes());
        (Some(kept), Arc::new(pool))
    }

    /// Has the keeper make memory ready; whether there is one that does.
    pub(super) fn prepare_kept(&self, plan: &PreparedSave, state: &State) -> bool {
        let attempt = Attempt {
            step: 0,
            name: PREPARING.into(),
            world: self.world.size(),
            if_committed: IfCommitted::Refuse,
            launch: None,
            supersedes: Supersedes::Nothing,
        };
        self.begin_kept(&attempt, plan, state).is_some()
    }

    /// The run as a reader finds it: its store, with what its keeper holds laid over it for as long as the result lives.
    pub fn stored_and_kept(&self) -> Arc<dyn Store> {
        match &self.options.keeper {
            Some(keeper) => keeper.over(&self.store),
            None => self.store.clone(),
        }
    }

    fn begin_kept(
        &self,
        attempt: &Attempt,
        plan: &PreparedSave,
        state: &State,
    ) -> Option<Box<dyn Keeping>> {
        let keeper = self.options.keeper.as_ref()?;
        let snapshot = Snapshot {
            run: self.store.url(),
            step: attempt.step,
            attempt: attempt.name.clone(),
            writer: self.world.rank(),
            world: attempt.world,
            len_bytes: plan.writer.image.as_ref().map_or(0, |image| image.len),
            replace: attempt.if_committed == IfCommitted::Replace,
        };
        keeper.begin(&snapshot, device_of(state))
    }
}

/// The first device that memory of the state is on: images are pinned for it.
fn device_of(state: &State) -> Option<Arc<dyn Device>> {
    let places = state.memory.iter().filter_map(|bytes| bytes.memory());
    places
        .map(|memory| memory.place())
        .find_map(|place| match place {
            Place::Device(device, _) => Some(device.clone()),
            Place::Host => None,
        })
}
