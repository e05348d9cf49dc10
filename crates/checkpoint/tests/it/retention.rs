//! What pruning keeps, what it never touches, and what a crash in the middle of it leaves.

use crate::common::{Model, copy_of, deadlines, latest, memory, replace};
use cairn_checkpoint::retention::{Keep, PrunePlan, plan, prune};
use cairn_checkpoint::{
    COMMIT, Checkpoint, SaveOptions, World, all_steps, is_timeline, step_folder,
};
use cairn_store::testing::{CrashPlan, CrashStore};
use cairn_store::{PutMode, Store};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(3600);

/// A run of two ranks with these steps, some of them tagged.
fn run_with(steps: &[(u64, &[&str])]) -> Arc<dyn Store> {
    let store = memory();
    for (step, tags) in steps {
        let save = SaveOptions {
            tags: tags.iter().map(|tag| (*tag).to_string()).collect(),
            ..SaveOptions::default()
        };
        for result in Model::on("tp=2", *step).save(&store, *step, &save) {
            result.unwrap();
        }
    }
    store
}

fn untagged(steps: impl IntoIterator<Item = u64>) -> Arc<dyn Store> {
    let steps: Vec<(u64, &[&str])> = steps.into_iter().map(|step| (step, &[][..])).collect();
    run_with(&steps)
}

/// Plans without looking for leftovers.
fn plan_for(store: &Arc<dyn Store>, keep: &Keep) -> PrunePlan {
    plan(store, keep, None, SystemTime::now()).unwrap()
}

/// Plans as somebody would who comes `later` and takes what is an hour old for abandoned.
fn plan_later(store: &Arc<dyn Store>, keep: &Keep, later: Duration) -> PrunePlan {
    plan(store, keep, Some(HOUR), SystemTime::now() + later).unwrap()
}

fn last(count: usize) -> Keep {
    Keep {
        last: count,
        ..Keep::default()
    }
}

fn kept(plan: &PrunePlan) -> Vec<u64> {
    plan.keep.keys().copied().collect()
}

fn damage(store: &dyn Store, ending: &str) {
    for meta in store.list("").unwrap() {
        if meta.key.ends_with(ending) {
            store.put(&meta.key, b"nonsense", PutMode::Replace).unwrap();
        }
    }
}

#[test]
fn a_step_stays_if_any_rule_keeps_it() {
    let store = run_with(&[
        (1, &[]),
        (2, &["best"]),
        (5, &[]),
        (10, &["eval", "best"]),
        (11, &["eval"]),
        (12, &[]),
    ]);
    let keep = |last, every, tags: &[&str]| Keep {
        last,
        every,
        tags: tags.iter().map(|tag| (*tag).to_string()).collect(),
    };
    for (keep, expected) in [
        (keep(2, None, &[]), vec![11, 12]),
        (keep(0, Some(5), &[]), vec![5, 10, 12]),
        (keep(0, None, &["best"]), vec![2, 10, 12]),
        (keep(1, Some(10), &["best", "unknown"]), vec![2, 10, 12]),
        (keep(99, None, &[]), vec![1, 2, 5, 10, 11, 12]),
        (keep(0, Some(0), &[]), vec![12]),
        (keep(0, Some(u64::MAX), &[]), vec![12]),
    ] {
        let plan = plan_for(&store, &keep);
        assert_eq!(kept(&plan), expected, "{keep:?}");
        let all: BTreeSet<u64> = plan.keep.keys().chain(&plan.remove).copied().collect();
        assert_eq!(all, [1, 2, 5, 10, 11, 12].into(), "{keep:?}");
    }
}

#[test]
fn pruning_does_what_the_plan_says_and_frees_what_it_promised() {
    let store = untagged(1..=5);
    let used = |store: &dyn Store| -> u64 {
        let listing = store.list("").unwrap();
        let data = listing.iter().filter(|meta| !is_timeline(&meta.key));
        data.map(|meta| meta.len).sum()
    };
    let before = used(store.as_ref());
    let plan = plan_for(&store, &last(2));
    prune(store.as_ref(), &plan).unwrap();
    assert_eq!(all_steps(store.as_ref()).unwrap(), [4, 5]);
    assert_eq!(before - used(store.as_ref()), plan.len_bytes);
    for step in [4, 5] {
        let checkpoint = Checkpoint::open(store.clone(), step).unwrap();
        Model::on("tp=2", step).assert_whole(&checkpoint);
    }
    // Once more is harmless.
    prune(store.as_ref(), &plan).unwrap();
    assert!(plan_for(&store, &last(2)).remove.is_empty());
}

#[test]
fn the_newest_good_step_stays_whatever_the_rules_say() {
    let store = untagged(1..=3);
    let plan = plan_for(&store, &Keep::default());
    assert_eq!(kept(&plan), [3]);
    assert_eq!(plan.remove, [1, 2]);
    damage(store.as_ref(), "step-00000003/COMMIT");
    let plan = plan_for(&store, &Keep::default());
    assert_eq!(kept(&plan), [2]);
}

#[test]
fn an_empty_run_has_nothing_to_prune() {
    let plan = plan_later(&memory(), &Keep::default(), 2 * HOUR);
    assert_eq!(plan, PrunePlan::default());
}

#[test]
fn damaged_steps_neither_count_nor_go() {
    let store = untagged(1..=4);
    damage(store.as_ref(), "step-00000004/COMMIT");
    let file = Checkpoint::open(store.clone(), 3).unwrap().data_key(1);
    store.delete(&file).unwrap();
    let plan = plan_later(&store, &last(1), 2 * HOUR);
    assert_eq!(kept(&plan), [2]);
    assert_eq!(plan.remove, [1]);
    assert!(plan.leftovers.is_empty(), "{:?}", plan.leftovers);
    assert!(plan.unusable[&3].contains(&file), "{:?}", plan.unusable);
    assert!(plan.unusable[&4].contains("step-00000004/COMMIT"));
    prune(store.as_ref(), &plan).unwrap();
    assert_eq!(all_steps(store.as_ref()).unwrap(), [2, 3, 4]);
}

/// Leaves a step 9 that writer 1 never delivered for.
fn abandon(store: &Arc<dyn Store>) {
    let worlds = World::threads(2);
    let model = Model::on("tp=2", 9);
    let options = deadlines(20, 10);
    let results = model.launch(store, &worlds[..1], 9, &SaveOptions::default(), &options);
    results[0].as_ref().unwrap_err();
}

#[test]
fn what_was_never_committed_goes_only_when_it_is_old_and_only_on_request() {
    let store = untagged([1]);
    abandon(&store);
    for plan in [
        plan_for(&store, &last(1)),
        plan_later(&store, &last(1), HOUR / 2),
    ] {
        assert!(plan.unusable.contains_key(&9));
        assert!(plan.remove.is_empty() && plan.leftovers.is_empty());
        prune(store.as_ref(), &plan).unwrap();
        assert_eq!(all_steps(store.as_ref()).unwrap(), [1, 9]);
    }
    let plan = plan_later(&store, &last(1), 2 * HOUR);
    assert_eq!(plan.leftovers.len(), 1);
    assert!(plan.len_bytes > 4096);
    prune(store.as_ref(), &plan).unwrap();
    assert_eq!(all_steps(store.as_ref()).unwrap(), [1]);
}

#[test]
fn attempts_that_were_replaced_are_leftovers() {
    let store = untagged([1]);
    let old = Checkpoint::open(store.clone(), 1).unwrap();
    let new = Model::on("dp=2", 2);
    for result in new.save(&store, 1, &replace()) {
        result.unwrap();
    }
    assert!(plan_later(&store, &last(1), HOUR / 2).leftovers.is_empty());
    let plan = plan_later(&store, &last(1), 2 * HOUR);
    let folder = format!("{}/{}", step_folder(1), old.manifest().attempt);
    assert_eq!(plan.leftovers, [folder.as_str()]);
    prune(store.as_ref(), &plan).unwrap();
    assert!(store.list(&folder).unwrap().is_empty());
    new.assert_whole(&latest(&store));
}

#[test]
fn a_crash_while_pruning_leaves_whole_steps_and_no_half_ones() {
    let start = untagged(1..=3);
    abandon(&start);
    let plan = plan_later(&start, &last(1), 2 * HOUR);
    let rehearsal = CrashStore::counting(copy_of(start.as_ref()));
    prune(&rehearsal, &plan).unwrap();
    for crash in CrashPlan::all(rehearsal.operations()) {
        let disk = copy_of(start.as_ref());
        prune(&CrashStore::new(disk.clone(), crash), &plan).unwrap_err();
        let disk: Arc<dyn Store> = Arc::new(disk);
        for step in all_steps(disk.as_ref()).unwrap() {
            let commit = format!("{}/{COMMIT}", step_folder(step));
            if disk.head(&commit).unwrap().is_some() {
                let checkpoint = Checkpoint::open(disk.clone(), step).unwrap();
                Model::on("tp=2", step).assert_whole(&checkpoint);
            }
        }
        assert_eq!(latest(&disk).step(), 3, "{crash:?}");
        // The next pruning takes away what this one left.
        prune(disk.as_ref(), &plan_later(&disk, &last(1), 2 * HOUR)).unwrap();
        assert_eq!(all_steps(disk.as_ref()).unwrap(), [3], "{crash:?}");
    }
}
