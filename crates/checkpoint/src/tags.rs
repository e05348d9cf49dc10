//! Words that people give to committed steps, to find them again and to keep them.
//!
//! A step's manifest never changes, so a tag that comes later is an object of its own beside it, `NAME.tag`, which says whether the
//! step has the tag. It comes before what the manifest says.

use crate::Error;
use crate::clock::rfc3339;
use crate::copies::{all, lasting};
use crate::error::StoreContext;
use crate::manifest::Manifest;
use crate::names::{AttemptKeys, commit_key, step_folder};
use crate::run;
use crate::standing::committed_attempt;
use crate::upload::is_marked;
use cairn_store::{PutMode, Store};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

/// The longest name of a tag.
pub const MAX_TAG_BYTES: usize = 64;

const ENDING: &str = ".tag";

/// Gives `step` the tag `name`. A step with a tag is never pruned.
///
/// # Errors
/// If the step is not committed, or was deleted at the same moment; [`Error::TagName`] for a name that is none.
pub fn tag(store: &Arc<dyn Store>, step: u64, name: &str) -> Result<(), Error> {
    put(store, step, name, true)?;
    match stays(store, step)? {
        true => Ok(()),
        false => Err(Error::Deleted { step }),
    }
}

/// Whether a step that just got a tag is not about to go.
///
/// A pruning hides a step before it looks for tags, so one of the two sees the other; one that is hidden may go. On tiers it counts whether the
/// durable one has it, or will: what was pruned there also leaves the fast tier.
fn stays(store: &Arc<dyn Store>, step: u64) -> Result<bool, Error> {
    let commit = commit_key(step);
    let found = lasting(store).head(&commit);
    let found = found.doing(|| format!("look for `{commit}`"))?;
    let Some(tiers) = store.tiers().filter(|_| found.is_none()) else {
        return Ok(found.is_some());
    };
    let fast = tiers.fast().as_ref();
    match committed_attempt(fast, step)? {
        None => Ok(false),
        Some(attempt) => Ok(!is_marked(fast, &AttemptKeys::new(step, &attempt))?),
    }
}

/// Whether the key of a file beside the attempts of a step is that of a tag.
pub(crate) fn is_tag(key: &str) -> bool {
    key.ends_with(ENDING)
}

/// Takes the tag `name` off `step`, however it got it. Nothing happens if it does not have it.
///
/// # Errors
/// As [`tag`].
pub fn untag(store: &Arc<dyn Store>, step: u64, name: &str) -> Result<(), Error> {
    put(store, step, name, false)
}

fn put(store: &Arc<dyn Store>, step: u64, name: &str, set: bool) -> Result<(), Error> {
    check_name(name)?;
    let checkpoint = run::open(store, step, None)?;
    let key = format!("{}/{name}{ENDING}", step_folder(step));
    if !set && !checkpoint.manifest().tags.iter().any(|tag| tag == name) {
        return store.delete(&key).doing(|| format!("delete `{key}`"));
    }
    let created = rfc3339(SystemTime::now());
    let text = json!({"cairn": 1, "kind": "tag", "set": set, "created": created}).to_string();
    all(store).into_iter().try_for_each(|tier| {
        let put = tier.put(&key, text.as_bytes(), PutMode::Replace);
        put.doing(|| format!("write `{key}`"))
    })
}

/// The tags of the step with this manifest, in order.
///
/// # Errors
/// If its folder cannot be listed or read.
pub fn tags_of(store: &dyn Store, manifest: &Manifest) -> Result<Vec<String>, Error> {
    tags_beside(store, manifest.step, &manifest.tags)
}

/// The tags that a step has now, if it was `saved` with these.
pub(crate) fn tags_beside(
    store: &dyn Store,
    step: u64,
    saved: &[String],
) -> Result<Vec<String>, Error> {
    let folder = step_folder(step);
    let beside = store
        .list_files(&folder)
        .doing(|| format!("list `{folder}`"))?;
    let mut tags: BTreeSet<String> = saved.iter().cloned().collect();
    for meta in beside {
        let name = meta.key.strip_prefix(&folder);
        let name = name.and_then(|name| name.strip_prefix('/')?.strip_suffix(ENDING));
        let Some(name) = name else {
            continue;
        };
        match is_set(store, &meta.key)? {
            Some(true) => tags.insert(name.to_string()),
            Some(false) => tags.remove(name),
            None => continue,
        };
    }
    Ok(tags.into_iter().collect())
}

/// What a tag's object says; `None` if it is gone. One that cannot be understood keeps its step.
fn is_set(store: &dyn Store, key: &str) -> Result<Option<bool>, Error> {
    let bytes = match store.get(key) {
        Err(cairn_store::Error::NotFound { .. }) => return Ok(None),
        result => result.doing(|| format!("read `{key}`"))?,
    };
    let document: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok(Some(document.get("set") != Some(&Value::Bool(false))))
}

fn check_name(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let good = (1..=MAX_TAG_BYTES).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.starts_with('.');
    match good {
        true => Ok(()),
        false => Err(Error::TagName { name: name.into() }),
    }
}
