//! Lines: what was saved after what.
//!
//! ```text
//! line 0   10 ─ 20 ─ 30 ─ 40        a loss spike at 30: training goes back to 20
//!                └─ line 1 ─ 21 ─ 25 ─ 30
//! ```
//!
//! Step numbers do not say which step was saved last: a run may go back to an older step, and a new run may be started in an old folder.
//! Each of these begins a new *line*. The number of a line is higher than those of all lines before it, and along a line steps only grow, so
//! (line, step) is the order of commits. The newest step is the last one of the newest line; the steps that led to it are its *history*, and
//! all others are *abandoned*.
//!
//! `lines/00000001` says where line 1 began; there is no such object for line 0. `COMMIT` names the line of its step.

use crate::Error;
use crate::copies;
use crate::error::StoreContext;
use crate::manifest::{Manifest, put_version};
use crate::part::field;
use crate::run::{all_steps, each_step};
use crate::seal::{seal, unseal};
use cairn_store::{Error as StoreError, ObjectMeta, PutMode, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What readers of a run with more than one line must know.
pub(crate) const FEATURE: &str = "lines";

/// The folder of a run that says where its lines began.
pub(crate) const FOLDER: &str = "lines";

/// The committed step that a save came after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The step.
    pub step: u64,
    /// The attempt at it.
    pub attempt: String,
    /// Its line.
    #[serde(default)]
    pub line: u64,
}

/// Where a line began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number.
    pub number: u64,
    /// The launch that began it.
    pub launch: String,
    /// The step it began from; none for a new run in an old folder.
    pub parent: Option<Parent>,
    /// When it began: RFC 3339, UTC.
    pub created: String,
}

impl Line {
    fn encode(&self) -> Vec<u8> {
        let mut members = Map::new();
        put_version(&mut members, &[]);
        members.insert("kind".into(), json!("line"));
        members.insert("line".into(), json!(self.number));
        members.insert("launch".into(), json!(self.launch));
        members.insert("parent".into(), json!(self.parent));
        members.insert("created".into(), json!(self.created));
        seal(&members).0.into_bytes()
    }

    fn decode(key: &str, bytes: &[u8]) -> Result<Self, Error> {
        let parse = |members: &Map<String, Value>| {
            Ok(Self {
                number: field(members, "line")?,
                launch: field(members, "launch")?,
                parent: field(members, "parent")?,
                created: field(members, "created")?,
            })
        };
        let parsed = unseal(bytes).and_then(|sealed| parse(&sealed.members));
        parsed.map_err(|reason| Error::damaged(key, reason))
    }
}

fn line_key(number: u64) -> String {
    format!("{FOLDER}/{number:08}")
}

/// The number of the newest line; 0 if the run never went back.
pub(crate) fn newest(store: &dyn Store) -> Result<u64, Error> {
    let listing = list(store).doing(|| format!("list `{FOLDER}`"))?;
    let numbers = listing
        .iter()
        .filter_map(|meta| meta.key.rsplit('/').next()?.parse().ok());
    Ok(numbers.max().unwrap_or(0))
}

/// The objects of lines. Where the durable tier cannot be asked, those of the fast one have to do: training need not wait for it.
fn list(store: &dyn Store) -> Result<Vec<ObjectMeta>, StoreError> {
    let Some(tiers) = store.tiers() else {
        return store.list_files(FOLDER);
    };
    let mut found = tiers.fast().list_files(FOLDER)?;
    match tiers.durable().list_files(FOLDER) {
        Ok(more) => found.extend(more),
        Err(error) => {
            tracing::warn!(%error, "the durable tier cannot be asked for the lines of the run");
        }
    }
    Ok(found)
}

/// Begins a new line and returns its number, which is at least the one that `line` has.
///
/// # Crash safety
/// A line that has no committed step changes nothing for readers.
pub(crate) fn begin(store: &dyn Store, mut line: Line) -> Result<u64, Error> {
    line.number = line.number.max(newest(store)? + 1);
    loop {
        let key = line_key(line.number);
        match store.put(&key, &line.encode(), PutMode::Create) {
            // Another launch took that number.
            Err(StoreError::AlreadyExists { .. }) => line.number += 1,
            put => {
                put.doing(|| format!("write `{key}`"))?;
                return Ok(line.number);
            }
        }
    }
}

/// Copies what says where lines began from one tier to another.
pub(crate) fn copy(from: &dyn Store, to: &dyn Store, line: u64) -> Result<(), Error> {
    let key = line_key(line);
    let bytes = match from.get(&key) {
        Err(StoreError::NotFound { .. }) => return Ok(()),
        bytes => bytes.doing(|| format!("read `{key}`"))?,
    };
    match to.put(&key, &bytes, PutMode::Create) {
        Err(StoreError::AlreadyExists { .. }) => Ok(()),
        put => put.doing(|| format!("upload `{key}`")),
    }
}

/// The line of a committed step; `None` if it is not committed. A step whose manifest cannot be used counts as one of the `newest` line: whoever
/// looks for the newest step has to find out about it.
fn line_of(store: &dyn Store, step: u64, newest: u64) -> Result<Option<u64>, Error> {
    match copies::manifest(store, step) {
        Ok((manifest, _)) => Ok(Some(manifest.line)),
        Err(Error::Incomplete { .. } | Error::Deleted { .. }) => Ok(None),
        Err(Error::Version { .. } | Error::Needs { .. }) => Ok(Some(newest)),
        Err(error) if error.is_damage() => Ok(Some(newest)),
        Err(error) => Err(error),
    }
}

/// The line of the newest step.
pub(crate) fn line_of_newest(store: &dyn Store, step: u64) -> Result<u64, Error> {
    let newest = newest(store)?;
    Ok(line_of(store, step, newest)?.unwrap_or(newest))
}

/// Of those of `steps` that `wanted` admits, the one that was committed last. `newest` is the number of the newest line.
pub(crate) fn last_committed(
    store: &dyn Store,
    steps: &[u64],
    newest: u64,
    wanted: impl Fn(&u64) -> bool,
) -> Result<Option<u64>, Error> {
    let mut found = None;
    for step in steps.iter().copied().rev().filter(wanted) {
        let line = line_of(store, step, newest)?;
        // Along the newest line the highest number is the last.
        if line.is_some_and(|line| line >= newest) {
            return Ok(Some(step));
        }
        found = found.max(line.map(|line| (line, step)));
    }
    Ok(found.map(|(_, step)| step))
}

/// The lines of a run after line 0, the oldest first. One whose object is damaged is left out.
///
/// # Errors
/// If the store cannot be read.
pub fn lines(store: &dyn Store) -> Result<Vec<Line>, Error> {
    let read = (1..=newest(store)?).map(|number| read_line(store, number).transpose());
    read.flatten().collect()
}

/// A committed step, and where it is in the history of its run.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The manifest.
    pub manifest: Manifest,
    /// Whether the run went back to before it since.
    pub is_abandoned: bool,
}

/// The committed steps whose manifests can be used, in the order in which they were saved.
pub(crate) fn committed(store: &Arc<dyn Store>) -> Result<Vec<Committed>, Error> {
    let steps = all_steps(store.as_ref())?;
    let found = each_step(store.as_ref(), &steps, |step| {
        match copies::manifest(store.as_ref(), step) {
            Ok((manifest, _)) => Ok(Some(manifest)),
            Err(Error::Incomplete { .. } | Error::Deleted { .. }) => Ok(None),
            Err(error @ (Error::Version { .. } | Error::Needs { .. })) => left_out(step, &error),
            Err(error) if error.is_damage() => left_out(step, &error),
            Err(error) => Err(error),
        }
    })?;
    let mut manifests: Vec<Manifest> = found.into_iter().flatten().collect();
    manifests.sort_by_key(|manifest| (manifest.line, manifest.step));
    let history = history(store.as_ref(), &manifests)?;
    let told = manifests.into_iter().map(|manifest| Committed {
        is_abandoned: !history.contains(manifest.line, manifest.step),
        manifest,
    });
    Ok(told.collect())
}

fn left_out(step: u64, error: &Error) -> Result<Option<Manifest>, Error> {
    tracing::warn!(step, error = %crate::chain(error), "a step is left out of the history of the run");
    Ok(None)
}

/// Which steps led to the newest one. `manifests` are those of all committed steps of the run.
///
/// # Errors
/// If the store cannot be read.
pub fn history<'a>(
    store: &dyn Store,
    manifests: impl IntoIterator<Item = &'a Manifest>,
) -> Result<History, Error> {
    let places = manifests.into_iter();
    let places = places.map(|it| (it.line, it.step, it.parent.as_ref()));
    History::read(store, places)
}

/// Which steps led to the newest one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The lines it went along, the newest first, and the last step that counts of each.
    spans: Vec<(u64, u64)>,
    /// The last of these, if nothing says where it began: what came before it may have led to it.
    open: bool,
}

impl Default for History {
    /// That of a run that never went back.
    fn default() -> Self {
        Self {
            spans: vec![(0, u64::MAX)],
            open: false,
        }
    }
}

impl History {
    /// The history of a run with these committed steps: the line of each, its number, and its parent.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn read<'a>(
        store: &dyn Store,
        steps: impl IntoIterator<Item = (u64, u64, Option<&'a Parent>)>,
    ) -> Result<Self, Error> {
        let steps: BTreeMap<_, _> = steps
            .into_iter()
            .map(|(line, step, parent)| ((line, step), parent))
            .collect();
        let newest = steps.keys().next_back().map_or(0, |(line, _)| *line);
        // What the steps themselves tell, where the object of a line is gone: the parent of its first step.
        let first = |line: u64| {
            steps
                .range((line, 0)..)
                .next()
                .filter(|(key, _)| key.0 == line)
        };
        let mut history = Self {
            spans: vec![(newest, u64::MAX)],
            open: false,
        };
        let mut line = newest;
        while line > 0 {
            let parent = match read_line(store, line)? {
                Some(line) => line.parent,
                None => match first(line) {
                    Some((_, parent)) => parent.cloned(),
                    None => {
                        history.open = true;
                        break;
                    }
                },
            };
            let Some(parent) = parent.filter(|parent| parent.line < line) else {
                break;
            };
            history.spans.push((parent.line, parent.step));
            line = parent.line;
        }
        Ok(history)
    }

    /// Whether a step of a line is part of it.
    pub fn contains(&self, line: u64, step: u64) -> bool {
        let span = self.spans.iter().find(|(number, _)| *number == line);
        match span {
            Some((_, last)) => step <= *last,
            None => self.open && self.spans.last().is_some_and(|(last, _)| line < *last),
        }
    }

    /// The steps at which its lines left those before them.
    pub fn forks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.spans.iter().skip(1).copied()
    }
}

/// Where a line began; `None` if that is not known, or damaged.
fn read_line(store: &dyn Store, number: u64) -> Result<Option<Line>, Error> {
    let key = line_key(number);
    let bytes = match store.get(&key) {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        bytes => bytes.doing(|| format!("read `{key}`"))?,
    };
    match Line::decode(&key, &bytes) {
        Err(error) if error.is_damage() => {
            tracing::warn!(line = number, error = %crate::chain(&error), "nothing says where a line began");
            Ok(None)
        }
        line => line.map(Some),
    }
}

#[cfg(test)]
mod tests;
