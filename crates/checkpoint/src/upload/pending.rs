//! What earlier launches left on the fast tier only.

use super::{Origin, Route, Upload, marks};
use crate::Error;
use crate::commit::{Attempt, IfCommitted, Supersedes};
use crate::error::{StoreContext, chain};
use crate::names::{AttemptKeys, step_folder};
use crate::part::read_head;
use crate::run::all_steps;
use crate::standing::committed_attempt;
use std::time::Instant;

/// The uploads that are this rank's to do, the oldest step first; not those of the attempt `except`, which is just being saved.
///
/// Of one fast tier for all ranks, committed steps are shared out by writer. Of a fast tier that is this node's own nobody else can upload
/// anything, and nobody here can tell what other nodes have: all that is found goes up, and the last to come commits.
pub(super) fn pending(route: &Route, except: Option<&str>) -> Result<Vec<Upload>, Error> {
    let fast = route.tiers.fast().as_ref();
    let mut found = Vec::new();
    for step in all_steps(fast)? {
        for attempt in attempts(route, step)? {
            if except == Some(&attempt) || is_settled(route, step, &attempt)? {
                continue;
            }
            match left(route, step, attempt) {
                Ok(upload) => found.extend(upload),
                Err(error) if error.is_damage() => {
                    tracing::warn!(step, error = %chain(&error), "a step on the fast tier cannot be uploaded");
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// The attempts of a step that may be worth uploading.
fn attempts(route: &Route, step: u64) -> Result<Vec<String>, Error> {
    let (fast, folder) = (route.tiers.fast().as_ref(), step_folder(step));
    if route.tiers.is_per_node() {
        let folders = fast.list_folders(&folder);
        return folders.doing(|| format!("list `{folder}`"));
    }
    match committed_attempt(fast, step) {
        Err(error) if error.is_damage() => {
            tracing::warn!(step, error = %chain(&error), "a step on the fast tier cannot be uploaded");
            Ok(Vec::new())
        }
        attempt => Ok(attempt?.into_iter().collect()),
    }
}

/// Whether an attempt is durable, or was given up by a writer. One that is committed was not: others did what that one could not.
fn is_settled(route: &Route, step: u64, attempt: &str) -> Result<bool, Error> {
    let keys = AttemptKeys::new(step, attempt);
    if marks::is_durable(&route.tiers, &keys)? {
        return Ok(true);
    }
    let failed = route.tiers.fast().head(&keys.failed());
    let failed = failed.doing(|| format!("look for `{}`", keys.failed()))?;
    Ok(failed.is_some() && route.tiers.is_per_node())
}

/// What this rank has to do for an attempt, if anything.
fn left(route: &Route, step: u64, name: String) -> Result<Option<Upload>, Error> {
    let fast = route.tiers.fast().as_ref();
    let keys = AttemptKeys::new(step, &name);
    let listing = fast.list(&keys.folder);
    let listing = listing.doing(|| format!("list `{}`", keys.folder))?;
    let mut writers: Vec<usize> = listing
        .iter()
        .filter_map(|meta| keys.writer_of_part(&meta.key))
        .collect();
    let Some(first) = writers.first() else {
        return Ok(None);
    };
    let part = read_head(fast, &keys, *first)?.part;
    if route.tiers.is_per_node() {
        // Ranks of one node begin with different files.
        writers.sort_by_key(|writer| (writer % route.size + route.size - route.rank) % route.size);
    } else {
        writers.retain(|writer| writer % route.size == route.rank);
    }
    let attempt = Attempt {
        step,
        name,
        world: part.world,
        if_committed: IfCommitted::Refuse,
        launch: None,
        supersedes: Supersedes::Nothing,
    };
    let line = (part.writer == 0).then_some(part.line);
    let created = part.created;
    let origin = Origin::Left { line, created };
    Ok(Some(Upload::new(attempt, writers, origin, Instant::now())))
}
