//! The steps of a run, as a reader sees them.

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::checkpointer::Latest;
use crate::error::chain;
use crate::error::{Skipped, StoreContext};
use crate::lines;
use crate::names::parse_step_folder;
use crate::signing::PublicKey;
use crate::standing::stands;
use crate::workers::{asking, gather};
use cairn_store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A look at a step asks for several things at once itself.
const STEPS_AT_ONCE: usize = 8;

/// The steps that have a folder, committed or not, ascending.
pub fn all_steps(store: &dyn Store) -> Result<Vec<u64>, Error> {
    Ok(steps_of(&folders(store)?))
}

/// All step numbers that have a folder, ascending, and the newest line: one listing, and another if the run ever went back.
fn steps_and_line(store: &dyn Store) -> Result<(Vec<u64>, u64), Error> {
    let folders = folders(store)?;
    let line = match folders.iter().any(|folder| folder == lines::FOLDER) {
        true => lines::newest(store)?,
        false => 0,
    };
    Ok((steps_of(&folders), line))
}

fn folders(store: &dyn Store) -> Result<Vec<String>, Error> {
    let listing = store.list_folders("");
    listing.doing(|| format!("list `{}`", store.url()))
}

fn steps_of(folders: &[String]) -> Vec<u64> {
    let steps = folders.iter();
    let mut steps: Vec<u64> = steps
        .filter_map(|folder| parse_step_folder(folder))
        .collect();
    steps.sort_unstable();
    steps
}

/// Looks at each of `steps` and returns what was found, in order; at several of them at the same time where every answer takes a while.
///
/// # Errors
/// The first failure, which ends it.
pub fn each_step<T: Send + Sync, E: Send>(
    store: &dyn Store,
    steps: &[u64],
    look: impl Fn(u64) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let threads = if store.is_far() { STEPS_AT_ONCE } else { 1 };
    gather(steps.len(), threads, |index| look(steps[index]))
}

/// The steps that are committed, ascending.
pub(crate) fn committed_steps(store: &dyn Store) -> Result<Vec<u64>, Error> {
    let steps = all_steps(store)?;
    let committed = gather(steps.len(), asking(store.is_far()), |index| {
        stands(store, steps[index])
    })?;
    let committed = steps.into_iter().zip(committed);
    Ok(committed
        .filter_map(|(step, stands)| stands.then_some(step))
        .collect())
}

/// The step that was committed last of those that are not in `except`: one listing, and one question if the run never went back and no
/// newer step is half written.
pub(crate) fn newest(store: &dyn Store, except: &BTreeSet<u64>) -> Result<Option<u64>, Error> {
    let wanted = |step: &u64| !except.contains(step);
    let (steps, line) = steps_and_line(store)?;
    if line > 0 {
        return match lines::last_committed(store, &steps, line, wanted)? {
            None => lines::last_committed(store, &all_steps(store)?, line, wanted),
            found => Ok(found),
        };
    }
    for step in steps.into_iter().rev().filter(wanted) {
        if stands(store, step)? {
            return Ok(Some(step));
        }
    }
    // The last one may have gone for one that was not committed yet when it was asked for.
    Ok(committed_steps(store)?.into_iter().rev().find(wanted))
}

/// Opens a committed step, or says which ones there are.
pub(crate) fn open(
    store: &Arc<dyn Store>,
    step: u64,
    key: Option<&PublicKey>,
) -> Result<Checkpoint, Error> {
    match open_trusted(store, step, key) {
        Err(Error::Incomplete { .. }) if !all_steps(store.as_ref())?.contains(&step) => {
            Err(Error::NoSuchStep {
                step,
                url: store.url(),
                available: committed_steps(store.as_ref())?,
            })
        }
        result => result,
    }
}

/// Opens a step, and requires that `key` signed it, if there is one.
pub(crate) fn open_trusted(
    store: &Arc<dyn Store>,
    step: u64,
    key: Option<&PublicKey>,
) -> Result<Checkpoint, Error> {
    let checkpoint = Checkpoint::open(store.clone(), step)?;
    match key {
        None => Ok(checkpoint),
        Some(key) => checkpoint.require_key(key),
    }
}

/// The newest step whose structure is whole.
pub(crate) fn latest(store: &Arc<dyn Store>, key: Option<&PublicKey>) -> Result<Latest, Error> {
    walk_back(store, key, |_| Ok(())).map(|(latest, ())| latest)
}

/// Tries `use_it` on the newest whole step, then on older ones for as long as damage is found.
///
/// Steps come and go meanwhile: the run is listed again for each try, so that one that is deleted as it is read, because there are newer
/// ones, leads to these. Which steps are committed is not asked first: on an object store that would be a request for each.
pub(crate) fn walk_back<T>(
    store: &Arc<dyn Store>,
    key: Option<&PublicKey>,
    mut use_it: impl FnMut(&Checkpoint) -> Result<T, Error>,
) -> Result<(Latest, T), Error> {
    let mut skipped: BTreeMap<u64, String> = BTreeMap::new();
    let mut absent = BTreeSet::new();
    loop {
        let Some(step) = next_step(store.as_ref(), &skipped, &absent)? else {
            return Err(Error::NothingUsable {
                url: store.url(),
                skipped: in_order(skipped),
            });
        };
        let opened = open_trusted(store, step, key);
        if let Err(Error::Deleted { .. } | Error::Incomplete { .. }) = opened {
            // It was never committed, or is deleted: no step.
            absent.insert(step);
            continue;
        }
        let attempt = opened.as_ref().ok();
        let attempt = attempt.map(|checkpoint| checkpoint.manifest().attempt.clone());
        let mut try_it = |checkpoint: Checkpoint| {
            checkpoint.check()?;
            let used = use_it(&checkpoint)?;
            Ok((checkpoint, used))
        };
        let mut tried = opened.and_then(&mut try_it);
        if let Err(error) = &tried
            && is_unusable(error)
            && let Some(older) = replaced_attempt(store, step, key, attempt.as_deref())
        {
            pass_over(&mut skipped, step, error);
            tried = try_it(older);
        }
        match tried {
            Ok((checkpoint, used)) => {
                let latest = Latest {
                    checkpoint,
                    skipped: in_order(skipped),
                };
                return Ok((latest, used));
            }
            Err(error) if is_unusable(&error) => pass_over(&mut skipped, step, &error),
            Err(error) => return Err(error),
        }
    }
}

/// Whether a step is passed over for an error. One that goes as it is read is, like a damaged one.
fn is_unusable(error: &Error) -> bool {
    error.is_damage() || matches!(error, Error::Deleted { .. } | Error::Incomplete { .. })
}

fn pass_over(skipped: &mut BTreeMap<u64, String>, step: u64, error: &Error) {
    let reason = chain(error);
    tracing::warn!(step, reason, "passing over a step that cannot be used");
    skipped.insert(step, reason);
}

/// What the durable tier has of a step while an attempt that is to replace it is on the fast tier only, and unusable.
fn replaced_attempt(
    store: &Arc<dyn Store>,
    step: u64,
    key: Option<&PublicKey>,
    unusable: Option<&str>,
) -> Option<Checkpoint> {
    let older = open_trusted(store.tiers()?.durable(), step, key).ok()?;
    (Some(older.manifest().attempt.as_str()) != unusable).then_some(older)
}

/// The step to try next: the last one that is neither `skipped` nor was found `absent`.
///
/// If there is none, all are asked whether they are committed, the oldest first: it goes only when there is a newer one.
fn next_step(
    store: &dyn Store,
    skipped: &BTreeMap<u64, String>,
    absent: &BTreeSet<u64>,
) -> Result<Option<u64>, Error> {
    let usable = |step: &u64| !skipped.contains_key(step);
    let (steps, line) = steps_and_line(store)?;
    if line > 0 {
        let wanted = |step: &u64| usable(step) && !absent.contains(step);
        return match lines::last_committed(store, &steps, line, wanted)? {
            None => lines::last_committed(store, &all_steps(store)?, line, usable),
            found => Ok(found),
        };
    }
    let mut steps = steps.into_iter().rev();
    if let Some(step) = steps.find(|step| usable(step) && !absent.contains(step)) {
        return Ok(Some(step));
    }
    Ok(committed_steps(store)?.into_iter().rev().find(usable))
}

/// The highest number first.
fn in_order(skipped: BTreeMap<u64, String>) -> Vec<Skipped> {
    let skipped = skipped.into_iter().rev();
    skipped
        .map(|(step, reason)| Skipped { step, reason })
        .collect()
}

#[cfg(test)]
mod tests {
    //! Steps that come and go while a reader walks back.

    use super::*;
    use crate::names::commit_key;
    use crate::source::Source;
    use crate::{Checkpointer, LoadOptions, SaveOptions, State, Target, World, step_folder};
    use cairn_sharding::{Mesh, TensorSpec};
    use cairn_store::Memory;
    use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
    use std::sync::Barrier;

    #[test]
    fn far_steps_are_looked_at_at_the_same_time_and_told_in_order() {
        let steps: Vec<u64> = (0..STEPS_AT_ONCE as u64).collect();
        let together = Barrier::new(STEPS_AT_ONCE);
        let look = |step| {
            together.wait();
            Ok::<_, Error>(step)
        };
        let far = FlakyStore::far(Memory::new());
        assert_eq!(each_step(&far, &steps, look).unwrap(), steps);
    }

    fn save(store: &Arc<dyn Store>, step: u64) {
        let run = Checkpointer::new(store.clone(), World::single());
        let spec = TensorSpec::parse(&Mesh::single(), "u8[1]").unwrap();
        let mut state = State::new(0);
        state.tensor("weights", &spec, &[7]).unwrap();
        let saving = run.save(step, &state, &SaveOptions::default()).unwrap();
        saving.wait().unwrap();
    }

    fn delete(store: &Arc<dyn Store>, step: u64) {
        for meta in store.list(&step_folder(step)).unwrap() {
            store.delete(&meta.key).unwrap();
        }
    }

    fn memory() -> Arc<dyn Store> {
        Arc::new(cairn_store::Memory::new())
    }

    #[test]
    fn a_step_that_goes_as_it_is_read_leads_to_the_newer_one_that_it_went_for() {
        let store = memory();
        save(&store, 1);
        let (latest, step) = walk_back(&store, None, |checkpoint| match checkpoint.step() {
            1 => {
                save(&store, 2);
                delete(&store, 1);
                checkpoint.open_file(0).map(|_| 1)
            }
            step => Ok(step),
        })
        .unwrap();
        assert_eq!((latest.checkpoint.step(), step), (2, 2));
        assert_eq!(latest.skipped[0].step, 1);
    }

    #[test]
    fn the_part_of_a_step_is_read_once_to_check_and_load_it() {
        let store = memory();
        save(&store, 1);
        let flaky = FlakyStore::new(store);
        for file in ["COMMIT", ".part", ".safetensors"] {
            let again = Rule::new([Operation::Open], Fault::NO_SPACE).on(file);
            flaky.add(again.nth(1));
        }
        let store: Arc<dyn Store> = Arc::new(flaky);
        let spec = TensorSpec::parse(&Mesh::single(), "u8[1]").unwrap();
        let mut loaded = [0];
        let loading = walk_back(&store, None, |checkpoint| {
            let target = Target::new("weights", &spec, 0, &mut loaded).unwrap();
            checkpoint.load(vec![target], &LoadOptions::default())?;
            checkpoint.rank_values(0)
        });
        loading.unwrap();
        assert_eq!(loaded, [7]);
    }

    #[test]
    fn the_newest_step_is_found_without_asking_for_older_ones() {
        let store = memory();
        (1..=4).for_each(|step| save(&store, step));
        store.delete(&commit_key(4)).unwrap();
        let flaky = FlakyStore::new(store);
        flaky.add(Rule::new([Operation::Head], Fault::NO_SPACE).on("step-00000001"));
        let found = |except: &[u64]| newest(&flaky, &except.iter().copied().collect());
        assert_eq!(
            found(&[]).unwrap(),
            Some(3),
            "the one above is half written"
        );
        assert_eq!(found(&[3]).unwrap(), Some(2));
        found(&[3, 2]).unwrap_err();
    }

    #[test]
    fn a_run_without_committed_steps_has_no_newest() {
        let store = memory();
        save(&store, 1);
        assert_eq!(newest(&store, &BTreeSet::from([1])).unwrap(), None);
        store.delete(&commit_key(1)).unwrap();
        assert_eq!(newest(&store, &BTreeSet::new()).unwrap(), None);
    }

    #[test]
    fn damaged_steps_are_each_tried_once_and_told_newest_first() {
        let store = memory();
        (1..=3).for_each(|step| save(&store, step));
        let mut tried = Vec::new();
        let nothing = walk_back(&store, None, |checkpoint| {
            tried.push(checkpoint.step());
            Err::<(), _>(Error::damaged("it", "is spoilt"))
        });
        let Err(Error::NothingUsable { skipped, .. }) = nothing else {
            panic!("everything is damaged");
        };
        assert_eq!(tried, [3, 2, 1]);
        let told: Vec<u64> = skipped.iter().map(|skipped| skipped.step).collect();
        assert_eq!(told, tried);
    }
}
