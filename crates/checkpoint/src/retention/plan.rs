//! What a pruning will do, before it does it.

use super::facts::{Facts, history};
use super::keep::Keep;
use super::known::{Known, Step};
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::clock::age_text;
use crate::copies::lasting;
use crate::delta::{Holder, References};
use crate::error::StoreContext;
use crate::error::chain;
use crate::handshake;
use crate::names::{AttemptKeys, deleted_key, hidden_key, is_timeline, step_folder};
use crate::run::{all_steps, committed_steps, each_step};
use crate::standing::{committed_attempt, deleted_attempt};
use crate::tags::tags_beside;
use crate::upload::{is_marked, is_tier};
use crate::verify::verify;
use crate::workers::{asking, gather};
use cairn_store::{ObjectMeta, Store, Upload};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For how long a pruning may be at a step that it hid, unless another age is given for what is abandoned.
const HIDDEN_FOR: Duration = Duration::from_secs(3600);

/// What a pruning will do, before it does it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrunePlan {
    /// Steps that stay, and the rules that keep them.
    pub keep: BTreeMap<u64, String>,
    /// Good steps that no rule keeps, and the attempt that holds each.
    pub remove: BTreeMap<u64, String>,
    /// Steps that were deleted before, and whose files go now.
    pub purge: Vec<u64>,
    /// Steps that are damaged, were never committed or are deleted but for their files, and why. They are not counted as kept and
    /// not removed.
    pub unusable: BTreeMap<u64, String>,
    /// Folders of attempts that lost to another one or were given up, and are old enough to be nobody's work in progress; those of
    /// steps that have no attempt at all; and those in which the ranks of a launch met.
    pub leftovers: Vec<String>,
    /// Steps that were saved anew, or came back, and have the mark of an old deletion beside them.
    pub beside: Vec<u64>,
    /// Steps that a pruning hid before it died. They come back before anything goes.
    pub hidden: Vec<u64>,
    /// Uploads that nobody has finished and that are old enough to be nobody's, either. Their bytes are in no listing.
    pub uploads: Vec<Upload>,
    /// Files of steps that are or were deleted, and of leftovers, that stay because others refer to them, and who does.
    pub held: BTreeMap<String, String>,
    /// The bytes that removing all this frees, at once or after the grace period, without those of timelines.
    pub len_bytes: u64,
    /// How long the files of removed steps stay.
    pub grace: Duration,
}

impl PrunePlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty()
            && self.purge.is_empty()
            && self.leftovers.is_empty()
            && self.hidden.is_empty()
            && self.uploads.is_empty()
    }
}

/// Plans a pruning of the run in `store`; on tiers, of the durable one. Only steps whose structure is whole count as kept.
///
/// From a folder that is the fast tier of a run, nothing goes that is not on the durable tier.
///
/// `abandoned_after`: uncommitted attempts whose newest file is older than this are leftovers, and so are uploads that were begun before
/// that and never finished; `None` leaves them alone.
///
/// # Errors
/// If the run cannot be listed.
pub fn plan(
    store: &Arc<dyn Store>,
    keep: &Keep,
    abandoned_after: Option<Duration>,
    now: SystemTime,
) -> Result<PrunePlan, Error> {
    plan_knowing(store, keep, abandoned_after, now, &Known::nothing())
}

/// As [`plan`], where something is known of the steps.
pub(super) fn plan_knowing(
    store: &Arc<dyn Store>,
    keep: &Keep,
    abandoned_after: Option<Duration>,
    now: SystemTime,
    known: &Known,
) -> Result<PrunePlan, Error> {
    let store = lasting(store);
    let mut plan = PrunePlan {
        grace: keep.grace,
        ..PrunePlan::default()
    };
    let committed = committed_steps(store.as_ref())?;
    let age = abandoned_after.unwrap_or(HIDDEN_FOR);
    let busy = look_for_hidden(store.as_ref(), &committed, age, now, &mut plan)?;
    known.retain(&committed);
    let good = good_steps(store, &committed, keep.read_share, now, known, &mut plan)?;
    let facts = gather(good.len(), asking(store.is_far()), |index| {
        let mut facts = good[index].facts.clone();
        facts.tags = tags_beside(store.as_ref(), facts.step, &facts.tags)?;
        Ok::<_, Error>(facts)
    })?;
    let is_tier = is_tier(store.as_ref())?;
    let seconds = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_secs());
    let mut reasons = keep.reasons(&facts, &history(store.as_ref(), &facts)?, seconds);
    for found in &good {
        let (step, attempt) = (found.facts.step, &found.attempt);
        match reasons.remove(&step) {
            Some(reasons) => plan.keep.insert(step, reasons.join(", ")),
            None if busy.contains(&step) => {
                plan.keep.insert(step, "another pruning is at it".into())
            }
            // On the fast tier of a run, only what was brought to the durable one may go.
            None if is_tier && !is_marked(store.as_ref(), &AttemptKeys::new(step, attempt))? => {
                plan.keep.insert(step, "not durable yet".into())
            }
            None => plan.remove.insert(step, attempt.clone()),
        };
    }
    let current = good.iter();
    let current = current.map(|found| (found.facts.step, Some(found.attempt.clone())));
    let mut current: BTreeMap<u64, Option<String>> = current.collect();
    look_for_marks(store.as_ref(), &committed, now, &mut plan, &mut current)?;
    if let Some(age) = abandoned_after {
        look_for_abandoned(store.as_ref(), current, age, now, &mut plan)?;
    }
    leave_links(store.as_ref(), &mut plan)?;
    hold(store.as_ref(), known, &mut plan)?;
    plan.len_bytes = freed(store.as_ref(), &plan)?;
    Ok(plan)
}

/// Looks for what nobody has touched for `age` and no step needs.
fn look_for_abandoned(
    store: &dyn Store,
    current: BTreeMap<u64, Option<String>>,
    age: Duration,
    now: SystemTime,
    plan: &mut PrunePlan,
) -> Result<(), Error> {
    plan.leftovers = leftovers(store, current, age, now)?;
    for folder in handshake::folders(store)? {
        if is_older(store, &folder, age, now)? {
            plan.leftovers.push(folder);
        }
    }
    let mut uploads = store.uploads("").doing(|| "list uploads".into())?;
    uploads.retain(|upload| now.duration_since(upload.begun).is_ok_and(|old| old >= age));
    plan.uploads = uploads;
    Ok(())
}

/// Leaves alone what lies behind links, in steps and attempts that somebody has moved elsewhere: nothing is deleted through one.
fn leave_links(store: &dyn Store, plan: &mut PrunePlan) -> Result<(), Error> {
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

/// Looks for marks of deletions, in all steps, and adds to `current` which attempt each step has.
fn look_for_marks(
    store: &dyn Store,
    committed: &[u64],
    now: SystemTime,
    plan: &mut PrunePlan,
    current: &mut BTreeMap<u64, Option<String>>,
) -> Result<(), Error> {
    let steps = all_steps(store)?;
    let marks = each_step(store, &steps, |step| {
        // What was opened is known.
        let is_asked = committed.contains(&step) && !current.contains_key(&step);
        let attempt = is_asked.then(|| committed_attempt(store, step));
        Ok::<_, Error>((attempt, look_for(store, &deleted_key(step))?))
    })?;
    for (step, (attempt, mark)) in steps.into_iter().zip(marks) {
        if committed.contains(&step) {
            if let Some(Ok(Some(attempt))) = attempt {
                current.insert(step, Some(attempt));
            }
            look_beside(store, step, mark, now, plan);
            continue;
        }
        match look_for_deleted(store, step, mark, now, plan)? {
            None => {
                plan.unusable.insert(step, "never committed".into());
                current.insert(step, None);
            }
            Some(attempt) => current.extend(attempt.map(|attempt| (step, Some(attempt)))),
        }
    }
    Ok(())
}

/// The steps whose structure is whole, in the order in which they were committed; of the newest, `read_share` of the bytes as well.
fn good_steps(
    store: &Arc<dyn Store>,
    committed: &[u64],
    read_share: f64,
    now: SystemTime,
    known: &Known,
    plan: &mut PrunePlan,
) -> Result<Vec<Arc<Step>>, Error> {
    let opened = each_step(store.as_ref(), committed, |step| {
        Ok::<_, Error>(known.step(store, step, now))
    })?;
    let mut opened: Vec<_> = committed.iter().zip(opened).collect();
    // One that cannot be opened is not good, wherever it stands.
    opened.sort_by_key(|(step, opened)| {
        let line = opened.as_ref().map_or(0, |found| found.facts.line);
        (line, **step)
    });
    let mut good = Vec::new();
    for (step, opened) in opened.into_iter().rev() {
        let is_newest = good.is_empty();
        let opened = opened.and_then(|found| {
            if is_newest && read_share > 0.0 {
                let checkpoint = Checkpoint::open(store.clone(), *step)?;
                let report = verify(&checkpoint, read_share, &|_| ())?;
                report.damage.into_iter().next().map_or(Ok(()), Err)?;
            }
            Ok(found)
        });
        match opened {
            Ok(found) => good.push(found),
            Err(error) => {
                plan.unusable.insert(*step, chain(&error));
            }
        }
    }
    good.reverse();
    Ok(good)
}

/// Looks for steps that a pruning hid. It is dead if nobody touched them for `age`; those that it may yet be at are returned.
///
/// Where a rename keeps the time of an object, as in files, it is also one move: there it does no harm to be too early.
fn look_for_hidden(
    store: &dyn Store,
    committed: &[u64],
    age: Duration,
    now: SystemTime,
    plan: &mut PrunePlan,
) -> Result<BTreeSet<u64>, Error> {
    let heads = each_step(store, committed, |step| look_for(store, &hidden_key(step)))?;
    let mut busy = BTreeSet::new();
    for (step, head) in committed.iter().zip(heads) {
        let Some(hidden) = head else {
            continue;
        };
        let since = now.duration_since(hidden.modified).unwrap_or_default();
        match since >= age {
            true => plan.hidden.push(*step),
            false => drop(busy.insert(*step)),
        }
    }
    Ok(busy)
}

/// Looks for the mark of a deletion beside a step that was saved anew, or came back. It goes, too.
fn look_beside(
    store: &dyn Store,
    step: u64,
    mark: Option<ObjectMeta>,
    now: SystemTime,
    plan: &mut PrunePlan,
) {
    let is_old = |mark: ObjectMeta| {
        let since = now.duration_since(mark.modified);
        since.unwrap_or_default() >= plan.grace
    };
    if mark.is_some_and(is_old) && matches!(deleted_attempt(store, step), Ok(Some(_))) {
        plan.beside.push(step);
    }
}

fn look_for(store: &dyn Store, key: &str) -> Result<Option<ObjectMeta>, Error> {
    store.head(key).doing(|| format!("look for `{key}`"))
}

/// The attempt of a step that is deleted but for its files, which go when their time has come; `Some(None)` if the mark cannot be read,
/// `None` if the step is not deleted.
fn look_for_deleted(
    store: &dyn Store,
    step: u64,
    mark: Option<ObjectMeta>,
    now: SystemTime,
    plan: &mut PrunePlan,
) -> Result<Option<Option<String>>, Error> {
    let Some(mark) = mark else {
        return Ok(None);
    };
    let attempt = match deleted_attempt(store, step) {
        // Nobody knows which files are its own.
        Err(error) if error.is_damage() => {
            plan.unusable.insert(step, chain(&error));
            return Ok(Some(None));
        }
        attempt => attempt?,
    };
    let since = now.duration_since(mark.modified).unwrap_or_default();
    if let Some(left) = plan.grace.checked_sub(since).filter(|left| !left.is_zero()) {
        let left = Duration::from_secs(left.as_secs().max(1));
        let reason = format!("deleted; its files stay for {} yet", age_text(left));
        plan.unusable.insert(step, reason);
    } else if attempt.is_some() {
        plan.purge.push(step);
    }
    Ok(Some(attempt))
}

/// Attempts that are not the `current` one of their step and that nobody has touched for `age`. The files of a damaged step are evidence,
/// not rubbish.
fn leftovers(
    store: &dyn Store,
    current: BTreeMap<u64, Option<String>>,
    age: Duration,
    now: SystemTime,
) -> Result<Vec<String>, Error> {
    let steps: Vec<u64> = current.keys().copied().collect();
    let found = each_step(store, &steps, |step| {
        let (folder, current) = (step_folder(step), current[&step].as_ref());
        let mut found = Vec::new();
        let attempts = store
            .list_folders(&folder)
            .doing(|| format!("list `{folder}`"))?;
        // A tag, say, that came when the step had just been deleted.
        if attempts.is_empty() && current.is_none() && is_older(store, &folder, age, now)? {
            found.push(folder);
        }
        for attempt in attempts {
            let folder = AttemptKeys::new(step, &attempt).folder;
            if current != Some(&attempt) && is_older(store, &folder, age, now)? {
                found.push(folder);
            }
        }
        Ok::<_, Error>(found)
    })?;
    Ok(found.into_iter().flatten().collect())
}

fn is_older(
    store: &dyn Store,
    folder: &str,
    age: Duration,
    now: SystemTime,
) -> Result<bool, Error> {
    let listing = list(store, folder)?;
    let newest = listing.iter().map(|meta| meta.modified).max();
    Ok(newest.is_some_and(|at| now.duration_since(at).is_ok_and(|old| old >= age)))
}

/// Finds what has to stay for others, and passes over folders that have nothing else.
fn hold(store: &dyn Store, known: &Known, plan: &mut PrunePlan) -> Result<(), Error> {
    let removed = plan.remove.iter();
    let removed = removed.map(|(step, attempt)| AttemptKeys::new(*step, attempt).folder);
    let mut going: BTreeSet<String> = removed.chain(plan.leftovers.iter().cloned()).collect();
    let mut purged = BTreeMap::new();
    for step in &plan.purge {
        if let Some(attempt) = deleted_attempt(store, *step)? {
            let folder = AttemptKeys::new(*step, &attempt).folder;
            going.insert(folder.clone());
            purged.insert(*step, folder);
        }
    }
    let references = References::read(store, known, &|holder| match holder {
        Holder::Step(step) => plan.remove.contains_key(step),
        Holder::Attempt(folder) => going.contains(folder),
    })?;
    let mut full = BTreeMap::new();
    let listings = list_all(store, &going)?;
    for (folder, listing) in going.into_iter().zip(listings) {
        let holders = |key: &String| Some((key.clone(), references.holders(key)?));
        let held: BTreeMap<String, String> = listing
            .iter()
            .filter_map(|meta| holders(&meta.key))
            .collect();
        if !held.is_empty() && held.len() == listing.len() {
            full.insert(folder, held.values().next().cloned().unwrap_or_default());
        }
        plan.held.extend(held);
    }
    plan.leftovers.retain(|folder| !full.contains_key(folder));
    for (step, folder) in purged {
        if let Some(who) = full.get(&folder) {
            plan.purge.retain(|purged| *purged != step);
            let reason = format!("deleted; its files stay for {who}");
            plan.unusable.insert(step, reason);
        }
    }
    Ok(())
}

fn freed(store: &dyn Store, plan: &PrunePlan) -> Result<u64, Error> {
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

/// What lies in each of some folders, in their order.
fn list_all(store: &dyn Store, folders: &BTreeSet<String>) -> Result<Vec<Vec<ObjectMeta>>, Error> {
    let folders: Vec<&String> = folders.iter().collect();
    gather(folders.len(), asking(store.is_far()), |index| {
        list(store, folders[index])
    })
}

fn list(store: &dyn Store, folder: &str) -> Result<Vec<ObjectMeta>, Error> {
    store.list(folder).doing(|| format!("list `{folder}`"))
}
