//! How much a pruning would free.

use super::{PrunePlan, list_all};
use crate::Error;
use crate::error::StoreContext;
use crate::names::{AttemptKeys, is_timeline, step_folder};
use crate::run::each_step;
use cairn_store::Store;
use std::collections::BTreeMap;

/// The bytes of what goes.
pub(super) fn freed(store: &dyn Store, plan: &PrunePlan) -> Result<u64, Error> {
    // A leftover may lie in the folder of a step that goes as a whole.
    let mut going = BTreeMap::new();
    let attempts = plan.remove.iter();
    let attempts = attempts.map(|(step, attempt)| AttemptKeys::new(*step, attempt).folder);
    let purged = plan.purge.iter().map(|step| step_folder(*step));
    let folders = attempts.chain(purged).chain(plan.leftovers.iter().cloned());
    for listing in list_all(store, &folders.collect())? {
        let data = listing
            .into_iter()
            .filter(|meta| !is_timeline(&meta.key) && !plan.held.contains_key(&meta.key));
        going.extend(data.map(|meta| (meta.key, meta.len)));
    }
    let removed: Vec<u64> = plan.remove.keys().copied().collect();
    let beside = each_step(store, &removed, |step| {
        let folder = step_folder(step);
        let beside = store.list_files(&folder);
        beside.doing(|| format!("list `{folder}`"))
    })?;
    for meta in beside.into_iter().flatten() {
        going.insert(meta.key, meta.len);
    }
    Ok(going.values().sum())
}
