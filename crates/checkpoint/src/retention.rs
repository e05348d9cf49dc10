//! Which steps to keep, as a policy value, and the deletion of the rest.

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::commit::chain;
use crate::error::StoreContext;
use crate::names::{commit_key, is_timeline, step_folder};
use crate::run::{all_steps, committed_steps};
use crate::verify::check_structure;
use cairn_store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Which steps stay. A step stays if any rule says so; the newest good one always stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keep {
    /// The newest this many.
    pub last: usize,
    /// Every step that is a multiple of this.
    pub every: Option<u64>,
    /// Steps with one of these tags.
    pub tags: Vec<String>,
}

/// What a pruning will do, before it does it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrunePlan {
    /// Steps that stay, and the rule that keeps them.
    pub keep: BTreeMap<u64, String>,
    /// Good steps that no rule keeps.
    pub remove: Vec<u64>,
    /// Steps that are damaged or were never committed, and why. They are not counted as kept and not removed.
    pub unusable: BTreeMap<u64, String>,
    /// Folders of attempts that lost to another one or were given up, and are old enough to be nobody's work in progress.
    pub leftovers: Vec<String>,
    /// The bytes that removing all this frees, without those of timelines.
    pub len_bytes: u64,
}

/// Plans a pruning of the run in `store`. Only steps whose structure is whole count as kept.
///
/// `abandoned_after`: uncommitted attempts whose newest file is older than this are leftovers; `None` leaves them alone.
///
/// # Errors
/// If the run cannot be listed.
pub fn plan(
    store: &Arc<dyn Store>,
    keep: &Keep,
    abandoned_after: Option<Duration>,
    now: SystemTime,
) -> Result<PrunePlan, Error> {
    let mut plan = PrunePlan::default();
    let mut good = Vec::new();
    let committed = committed_steps(store.as_ref())?;
    for step in &committed {
        match open_whole(store, *step) {
            Ok(checkpoint) => good.push(checkpoint),
            Err(error) => {
                plan.unusable.insert(*step, chain(&error));
            }
        }
    }
    for (from_newest, checkpoint) in good.iter().rev().enumerate() {
        match reason(keep, checkpoint, from_newest) {
            Some(reason) => {
                plan.keep.insert(checkpoint.step(), reason);
            }
            None => plan.remove.push(checkpoint.step()),
        }
    }
    plan.remove.sort_unstable();
    for step in all_steps(store.as_ref())? {
        if !committed.contains(&step) {
            plan.unusable.insert(step, "never committed".into());
        }
    }
    if let Some(age) = abandoned_after {
        plan.leftovers = leftovers(store, &good, &plan, age, now)?;
    }
    plan.len_bytes = freed(store.as_ref(), &plan)?;
    Ok(plan)
}

/// Does what `plan` says. A step's `COMMIT` goes first, so that nobody finds half a step.
///
/// # Errors
/// If something cannot be deleted. Deleting again is harmless.
pub fn prune(store: &dyn Store, plan: &PrunePlan) -> Result<(), Error> {
    for step in &plan.remove {
        let key = commit_key(*step);
        store.delete(&key).doing(|| format!("delete `{key}`"))?;
        delete_folder(store, &step_folder(*step))?;
    }
    for folder in &plan.leftovers {
        delete_folder(store, folder)?;
    }
    // What dead writers left half-written is in no listing.
    store.sweep("").doing(|| "sweep the run".into())?;
    Ok(())
}

fn open_whole(store: &Arc<dyn Store>, step: u64) -> Result<Checkpoint, Error> {
    let checkpoint = Checkpoint::open(store.clone(), step)?;
    check_structure(&checkpoint)?;
    Ok(checkpoint)
}

fn reason(keep: &Keep, checkpoint: &Checkpoint, from_newest: usize) -> Option<String> {
    if from_newest < keep.last {
        return Some("last".into());
    }
    if let Some(every) = keep.every.filter(|every| *every > 0)
        && checkpoint.step().is_multiple_of(every)
    {
        return Some(format!("every {every}"));
    }
    let tags = &checkpoint.manifest().tags;
    if let Some(tag) = tags.iter().find(|tag| keep.tags.contains(tag)) {
        return Some(format!("tag {tag}"));
    }
    (from_newest == 0).then(|| "newest good".into())
}

/// Attempts that no `COMMIT` names and that nobody has touched for `age`.
fn leftovers(
    store: &Arc<dyn Store>,
    good: &[Checkpoint],
    plan: &PrunePlan,
    age: Duration,
    now: SystemTime,
) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for step in all_steps(store.as_ref())? {
        // The files of a damaged step are evidence, not rubbish.
        let committed = good.iter().find(|checkpoint| checkpoint.step() == step);
        let uncommitted = plan
            .unusable
            .get(&step)
            .is_some_and(|why| why == "never committed");
        if committed.is_none() && !uncommitted {
            continue;
        }
        let folder = step_folder(step);
        let attempts = store
            .list_folders(&folder)
            .doing(|| format!("list `{folder}`"))?;
        for attempt in attempts {
            let current = committed.is_some_and(|c| c.manifest().attempt == attempt);
            let folder = format!("{folder}/{attempt}");
            if !current && is_older(store.as_ref(), &folder, age, now)? {
                found.push(folder);
            }
        }
    }
    Ok(found)
}

fn is_older(
    store: &dyn Store,
    folder: &str,
    age: Duration,
    now: SystemTime,
) -> Result<bool, Error> {
    let listing = store.list(folder).doing(|| format!("list `{folder}`"))?;
    let newest = listing.iter().map(|meta| meta.modified).max();
    Ok(newest.is_some_and(|at| now.duration_since(at).is_ok_and(|old| old >= age)))
}

fn freed(store: &dyn Store, plan: &PrunePlan) -> Result<u64, Error> {
    let steps = plan.remove.iter().map(|step| step_folder(*step));
    let mut total = 0;
    for folder in steps.chain(plan.leftovers.iter().cloned()) {
        let listing = store.list(&folder).doing(|| format!("list `{folder}`"))?;
        let data = listing.iter().filter(|meta| !is_timeline(&meta.key));
        total += data.map(|meta| meta.len).sum::<u64>();
    }
    Ok(total)
}

fn delete_folder(store: &dyn Store, folder: &str) -> Result<(), Error> {
    let listing = store.list(folder).doing(|| format!("list `{folder}`"))?;
    for meta in listing {
        store
            .delete(&meta.key)
            .doing(|| format!("delete `{}`", meta.key))?;
    }
    Ok(())
}
