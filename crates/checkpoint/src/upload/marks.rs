//! Marks on the fast tier that say what is on the durable one, and what may leave the fast tier because of it.
//!
//! ```text
//! FAST/DURABLE                     where the durable tier is
//! FAST/step-00012000/4d1c…/DURABLE that this attempt, or a younger one at the step, was committed there
//! ```

use super::Route;
use crate::Error;
use crate::delta::References;
use crate::error::StoreContext;
use crate::manifest::Brief;
use crate::names::{AttemptKeys, DURABLE, hidden_key, is_timeline, step_folder};
use crate::retention::delete_pins;
use crate::retention::Known;
use crate::run::all_steps;
use crate::standing::{committed_attempt, hidden_attempt, hide};
use cairn_store::{PutMode, Store, Tiered};
use std::time::SystemTime;

/// Marks an attempt as no longer needed on the fast tier. If that fails, it is found out again.
pub(super) fn mark(tiers: &Tiered, keys: &AttemptKeys) {
    let (key, url) = (keys.durable(), tiers.durable().url());
    if let Err(error) = tiers.fast().put(&key, url.as_bytes(), PutMode::Replace) {
        tracing::debug!(key, %error, "the mark of a durable step was not left");
    }
}

/// Says on the fast tier where the durable one is, so that nobody who finds it alone deletes what is nowhere else.
pub(super) fn mark_tier(tiers: &Tiered) -> Result<(), Error> {
    let url = tiers.durable().url();
    if tiers
        .fast()
        .get(DURABLE)
        .is_ok_and(|found| found == url.as_bytes())
    {
        return Ok(());
    }
    let put = tiers.fast().put(DURABLE, url.as_bytes(), PutMode::Replace);
    put.doing(|| format!("write `{DURABLE}`"))
}

/// Whether a store is the fast tier of a run.
pub(crate) fn is_tier(store: &dyn Store) -> Result<bool, Error> {
    let head = store.head(DURABLE);
    Ok(head.doing(|| format!("look for `{DURABLE}`"))?.is_some())
}

/// Whether an attempt on a fast tier is marked as committed on a durable one.
pub(crate) fn is_marked(fast: &dyn Store, keys: &AttemptKeys) -> Result<bool, Error> {
    let key = keys.durable();
    let head = fast.head(&key).doing(|| format!("look for `{key}`"))?;
    Ok(head.is_some())
}

/// Whether an attempt is marked as committed on the durable tier of this run, which may have had another one before.
pub(super) fn is_durable(tiers: &Tiered, keys: &AttemptKeys) -> Result<bool, Error> {
    let key = keys.durable();
    match tiers.fast().get(&key) {
        Err(cairn_store::Error::NotFound { .. }) => Ok(false),
        found => {
            let found = found.doing(|| format!("read `{key}`"))?;
            Ok(found == tiers.durable().url().as_bytes())
        }
    }
}

/// Deletes steps from the fast tier that are durable and older than the newest few that are, but for files that others there refer to.
///
/// What is not durable stays. Where each node has a fast tier of its own, files that have no mark and were written before those of a durable
/// step belong to attempts that were never completed: every rank uploads in the order in which it saved. The number of the step does not tell:
/// a run may go back.
pub(super) fn prune(route: &Route) -> Result<(), Error> {
    let (Some(keep), tiers) = (route.keep, &route.tiers) else {
        return Ok(());
    };
    let fast = tiers.fast().as_ref();
    let (mut kept, mut going, mut uploaded) = (0, Vec::new(), None);
    for (step, attempts) in latest_first(tiers)? {
        let durable = attempts.iter().filter(|attempt| attempt.is_durable);
        if kept < keep.max(1) {
            if let Some(newest) = durable.map(|attempt| attempt.written).max() {
                uploaded = uploaded.max(newest);
                kept += 1;
            }
            continue;
        }
        let is_given_up = |attempt: &OnFast| tiers.is_per_node() && attempt.written < uploaded;
        let gone = attempts
            .into_iter()
            .filter(|attempt| attempt.is_durable || is_given_up(attempt));
        going.extend(gone.map(|attempt| (step, attempt.name)));
    }
    if going.is_empty() {
        return Ok(());
    }
    let mut gone = Vec::new();
    for (step, attempt) in going {
        if take(fast, step, &attempt)? {
            gone.push((step, attempt));
        }
    }
    // Not before each `COMMIT` that goes is gone: see `References`.
    let references = References::read(fast, &Known::nothing(), &|_| false)?;
    for (step, attempt) in &gone {
        erase(fast, &AttemptKeys::new(*step, attempt), &references)?;
    }
    for (step, _) in gone {
        let folder = step_folder(step);
        if attempts(tiers, step)?.is_empty() {
            // Tags, and the like.
            let listing = fast.list(&folder).doing(|| format!("list `{folder}`"))?;
            listing
                .iter()
                .try_for_each(|meta| delete(fast, &meta.key))?;
        }
    }
    Ok(())
}

/// When the last data or part of an attempt was written on the fast tier.
fn written(fast: &dyn Store, keys: &AttemptKeys) -> Result<Option<SystemTime>, Error> {
    let (folder, mark) = (&keys.folder, keys.durable());
    let listing = fast.list(folder).doing(|| format!("list `{folder}`"))?;
    let files = listing.iter();
    let files = files.filter(|meta| meta.key != mark && !is_timeline(&meta.key));
    Ok(files.map(|meta| meta.modified).max())
}

/// An attempt on the fast tier.
struct OnFast {
    name: String,
    is_durable: bool,
    written: Option<SystemTime>,
}

/// The steps on the fast tier with their attempts, the one that was written last first.
fn latest_first(tiers: &Tiered) -> Result<Vec<(u64, Vec<OnFast>)>, Error> {
    let steps = all_steps(tiers.fast().as_ref())?.into_iter();
    let steps = steps.map(|step| Ok::<_, Error>((step, attempts(tiers, step)?)));
    let mut steps = steps.collect::<Result<Vec<_>, _>>()?;
    let written = |attempts: &[OnFast]| attempts.iter().map(|attempt| attempt.written).max();
    steps.sort_by_key(|(step, attempts)| (written(attempts), *step));
    steps.reverse();
    Ok(steps)
}

/// The attempts of a step on the fast tier.
fn attempts(tiers: &Tiered, step: u64) -> Result<Vec<OnFast>, Error> {
    let (fast, folder) = (tiers.fast().as_ref(), step_folder(step));
    let names = fast.list_folders(&folder);
    let names = names.doing(|| format!("list `{folder}`"))?.into_iter();
    let look = |name: String| {
        let keys = AttemptKeys::new(step, &name);
        Ok(OnFast {
            is_durable: is_durable(tiers, &keys)?,
            written: written(fast, &keys)?,
            name,
        })
    };
    names.map(look).collect()
}

/// Takes the manifest away, if it is this attempt's, and what the attempt says that it may refer to: it does not any more. Whether it did:
/// another rank may be at it.
fn take(fast: &dyn Store, step: u64, attempt: &str) -> Result<bool, Error> {
    let stands = || committed_attempt(fast, step).map(|found| found.as_deref() == Some(attempt));
    if stands().unwrap_or(false) {
        let is_it = |found: &Brief| Ok(found.attempt == attempt);
        hide(fast, step, is_it)?;
        // Hidden now, or by a rank that died: all would do the same.
        if hidden_attempt(fast, step)?.as_deref() == Some(attempt) {
            delete(fast, &hidden_key(step))?;
        }
        if stands()? {
            return Ok(false);
        }
    }
    delete_pins(fast, &AttemptKeys::new(step, attempt).folder)?;
    Ok(true)
}

/// Deletes the files of an attempt that nobody refers to. Its mark goes last, and with all of them: without it, half a step would look as if
/// it were nowhere else.
fn erase(fast: &dyn Store, keys: &AttemptKeys, references: &References) -> Result<(), Error> {
    let (folder, mark) = (&keys.folder, keys.durable());
    let listing = fast.list(folder).doing(|| format!("list `{folder}`"))?;
    let (held, free): (Vec<_>, Vec<_>) = listing
        .iter()
        .filter(|meta| meta.key != mark)
        .partition(|meta| references.holders(&meta.key).is_some());
    free.iter().try_for_each(|meta| delete(fast, &meta.key))?;
    match held.is_empty() {
        true => delete(fast, &mark),
        false => Ok(()),
    }
}

fn delete(fast: &dyn Store, key: &str) -> Result<(), Error> {
    fast.delete(key).doing(|| format!("delete `{key}`"))
}
