//! What lies behind links is left alone.

use super::PrunePlan;
use crate::Error;
use crate::error::StoreContext;
use crate::names::{AttemptKeys, step_folder};
use cairn_store::Store;
use std::collections::BTreeSet;

/// Leaves alone what lies behind links, in steps and attempts that somebody has moved elsewhere: nothing is deleted through one.
pub(super) fn leave_links(store: &dyn Store, plan: &mut PrunePlan) -> Result<(), Error> {
    let is_linked = |folder: &str| {
        let linked = store.is_linked(folder);
        linked.doing(|| format!("look at `{folder}`"))
    };
    let mut linked = BTreeSet::new();
    for (step, attempt) in &plan.remove {
        if is_linked(&AttemptKeys::new(*step, attempt).folder)? {
            linked.insert(*step);
        }
    }
    for step in linked {
        plan.remove.remove(&step);
        plan.keep.insert(step, "it lies behind a link".into());
    }
    for steps in [&mut plan.purge, &mut plan.beside, &mut plan.hidden] {
        let mut here = Vec::new();
        for step in steps.drain(..) {
            if !is_linked(&step_folder(step))? {
                here.push(step);
            }
        }
        *steps = here;
    }
    let mut leftovers = Vec::new();
    for folder in plan.leftovers.drain(..) {
        if !is_linked(&folder)? {
            leftovers.push(folder);
        }
    }
    plan.leftovers = leftovers;
    Ok(())
}
