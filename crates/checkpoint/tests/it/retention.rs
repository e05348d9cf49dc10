//! What pruning keeps, what it never touches, and what a crash in the middle of it leaves.

use crate::common::{Model, copy_of, deadlines, latest, memory, replace};
use cairn_checkpoint::retention::{Keep, PrunePlan, Pruner, plan, prune};
use cairn_checkpoint::tags::{tag, tags_of, untag};
use cairn_checkpoint::{
    COMMIT, Checkpoint, DELETED, Error, HIDDEN, SaveOptions, Source, StepState, World, all_steps,
    finish, is_timeline, step_folder, survey, verify,
};
use cairn_store::testing::{CrashPlan, CrashStore, Fault, FlakyStore, Operation, Rule};
use cairn_store::{Local, PutMode, Store};
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

fn removed(plan: &PrunePlan) -> Vec<u64> {
    plan.remove.keys().copied().collect()
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
    let keep = |last, every| Keep {
        last,
        every,
        ..Keep::default()
    };
    for (keep, expected) in [
        (keep(2, None), vec![2, 10, 11, 12]),
        (keep(0, Some(5)), vec![2, 5, 10, 11, 12]),
        (keep(99, None), vec![1, 2, 5, 10, 11, 12]),
        (keep(0, Some(0)), vec![2, 10, 11, 12]),
        (keep(0, Some(u64::MAX)), vec![2, 10, 11, 12]),
    ] {
        let plan = plan_for(&store, &keep);
        assert_eq!(kept(&plan), expected, "{keep:?}");
        let all: BTreeSet<u64> = plan.keep.keys().copied().chain(removed(&plan)).collect();
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
    assert_eq!(removed(&plan), [1, 2]);
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
    assert_eq!(removed(&plan), [1]);
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

/// What a policy that keeps the last step does to a run, with a grace period of an hour.
fn with_grace() -> Keep {
    Keep {
        grace: HOUR,
        ..last(1)
    }
}

#[test]
fn a_reader_of_a_deleted_step_reads_on_for_the_grace_period() {
    let store = untagged(1..=2);
    let reader = Checkpoint::open(store.clone(), 1).unwrap();
    prune(store.as_ref(), &plan_for(&store, &with_grace())).unwrap();
    // Nobody opens it any more, and nobody mistakes it for a save that lacks its commit.
    let opened = Checkpoint::open(store.clone(), 1);
    assert!(matches!(opened, Err(Error::Deleted { step: 1 })));
    assert!(matches!(
        survey(&store, 1, 0.0, &|_| ()),
        Ok(StepState::Deleted)
    ));
    assert!(matches!(
        finish(store.as_ref(), 1),
        Err(Error::Deleted { .. })
    ));
    Model::on("tp=2", 1).assert_whole(&reader);
    let plan = plan_later(&store, &with_grace(), HOUR / 2);
    assert!(
        plan.is_empty() && plan.unusable[&1].contains("files stay for"),
        "{plan:?}"
    );
    let plan = plan_later(&store, &with_grace(), HOUR + HOUR / 2);
    assert_eq!(plan.purge, [1]);
    prune(store.as_ref(), &plan).unwrap();
    assert_eq!(all_steps(store.as_ref()).unwrap(), [2]);
    // What is not there any more is told as what it is.
    let gone = reader.open_file(0).map(drop);
    assert!(matches!(gone, Err(Error::Deleted { step: 1 })), "{gone:?}");
    let gone = verify(&reader, 1.0, &|_| ()).map(drop);
    assert!(matches!(gone, Err(Error::Deleted { step: 1 })), "{gone:?}");
}

#[test]
fn a_tag_keeps_a_step_and_one_that_is_taken_off_does_not() {
    let store = run_with(&[(1, &["eval"]), (2, &[]), (3, &[])]);
    let manifest = |step| {
        Checkpoint::open(store.clone(), step)
            .unwrap()
            .manifest()
            .clone()
    };
    tag(&store, 2, "released").unwrap();
    assert_eq!(kept(&plan_for(&store, &last(1))), [1, 2, 3]);
    assert_eq!(tags_of(store.as_ref(), &manifest(2)).unwrap(), ["released"]);
    untag(&store, 1, "eval").unwrap();
    untag(&store, 2, "never there").unwrap_err();
    untag(&store, 2, "never-there").unwrap();
    assert!(tags_of(store.as_ref(), &manifest(1)).unwrap().is_empty());
    assert_eq!(kept(&plan_for(&store, &last(1))), [2, 3]);
    tag(&store, 1, "eval").unwrap();
    assert_eq!(tags_of(store.as_ref(), &manifest(1)).unwrap(), ["eval"]);
    assert!(matches!(tag(&store, 9, "x"), Err(Error::NoSuchStep { .. })));
}

#[test]
fn a_tag_that_cannot_be_read_keeps_its_step() {
    let store = untagged(1..=2);
    tag(&store, 1, "x").unwrap();
    damage(store.as_ref(), "x.tag");
    assert_eq!(kept(&plan_for(&store, &last(1))), [1, 2]);
}

#[test]
fn what_is_tagged_or_saved_anew_after_the_plan_is_spared() {
    let store = untagged(1..=3);
    let plan = plan_for(&store, &last(1));
    assert_eq!(removed(&plan), [1, 2]);
    tag(&store, 1, "late").unwrap();
    let new = Model::on("dp=2", 7);
    for result in new.save(&store, 2, &replace()) {
        result.unwrap();
    }
    assert_eq!(prune(store.as_ref(), &plan).unwrap(), [1, 2]);
    assert_eq!(all_steps(store.as_ref()).unwrap(), [1, 2, 3]);
    Model::on("tp=2", 1).assert_whole(&Checkpoint::open(store.clone(), 1).unwrap());
    new.assert_whole(&Checkpoint::open(store.clone(), 2).unwrap());
}

#[test]
fn a_step_that_is_saved_again_while_its_old_files_wait_is_whole() {
    let store = untagged(1..=2);
    prune(store.as_ref(), &plan_for(&store, &with_grace())).unwrap();
    let new = Model::on("dp=2", 7);
    for result in new.save(&store, 1, &SaveOptions::default()) {
        result.unwrap();
    }
    let plan = plan_later(
        &store,
        &Keep {
            last: 2,
            ..with_grace()
        },
        2 * HOUR,
    );
    prune(store.as_ref(), &plan).unwrap();
    new.assert_whole(&Checkpoint::open(store.clone(), 1).unwrap());
}

#[test]
fn bytes_are_proven_before_anything_goes() {
    let store = untagged(1..=3);
    let file = Checkpoint::open(store.clone(), 3).unwrap().data_key(0);
    let mut bytes = store.get(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    store.put(&file, &bytes, PutMode::Replace).unwrap();
    assert_eq!(removed(&plan_for(&store, &last(1))), [1, 2]);
    let proven = Keep {
        read_share: 1.0,
        ..last(1)
    };
    let plan = plan_for(&store, &proven);
    assert_eq!((kept(&plan), removed(&plan)), (vec![2], vec![1]));
    assert!(plan.unusable[&3].contains(&file));
}

#[test]
fn a_crash_while_steps_are_hidden_leaves_all_of_them_whole_or_deleted() {
    let start = untagged(1..=3);
    let plan = plan_for(&start, &with_grace());
    let rehearsal = CrashStore::counting(copy_of(start.as_ref()));
    prune(&rehearsal, &plan).unwrap();
    for crash in CrashPlan::all(rehearsal.operations()) {
        let disk = copy_of(start.as_ref());
        prune(&CrashStore::new(disk.clone(), crash), &plan).unwrap_err();
        let disk: Arc<dyn Store> = Arc::new(disk);
        for step in 1..=3 {
            let deleted = format!("{}/{DELETED}", step_folder(step));
            match disk.head(&deleted).unwrap() {
                None => Model::on("tp=2", step)
                    .assert_whole(&Checkpoint::open(disk.clone(), step).unwrap()),
                Some(_) => assert!(Checkpoint::open(disk.clone(), step).is_err()),
            }
        }
        prune(disk.as_ref(), &plan_later(&disk, &last(1), 2 * HOUR)).unwrap();
        assert_eq!(all_steps(disk.as_ref()).unwrap(), [3], "{crash:?}");
    }
}

#[test]
fn a_crash_of_a_pruning_takes_nothing_that_was_tagged_or_saved_anew_since_its_plan() {
    let start = untagged(1..=3);
    let plan = plan_for(&start, &last(1));
    tag(&start, 1, "late").unwrap();
    let new = Model::on("dp=2", 7);
    for result in new.save(&start, 2, &replace()) {
        result.unwrap();
    }
    let is_there = |store: &Arc<dyn Store>| {
        Model::on("tp=2", 1).assert_whole(&Checkpoint::open(store.clone(), 1).unwrap());
        new.assert_whole(&Checkpoint::open(store.clone(), 2).unwrap());
    };
    let rehearsal = CrashStore::counting(copy_of(start.as_ref()));
    prune(&rehearsal, &plan).unwrap();
    for crash in CrashPlan::all(rehearsal.operations()) {
        let disk = copy_of(start.as_ref());
        prune(&CrashStore::new(disk.clone(), crash), &plan).unwrap_err();
        let disk: Arc<dyn Store> = Arc::new(disk);
        is_there(&disk);
        prune(disk.as_ref(), &plan_later(&disk, &last(3), 2 * HOUR)).unwrap();
        is_there(&disk);
        let keys = disk.list("").unwrap().into_iter().map(|meta| meta.key);
        let aside = |key: &String| key.ends_with(HIDDEN) || key.ends_with(DELETED);
        assert_eq!(keys.filter(aside).count(), 0, "{crash:?}");
    }
}

#[test]
fn a_step_that_a_pruning_hid_is_committed_until_that_is_sure() {
    let store = untagged(1..=3);
    let [commit, hidden] = [COMMIT, HIDDEN].map(|name| format!("{}/{name}", step_folder(1)));
    store.rename(&commit, &hidden, PutMode::Create).unwrap();
    let model = Model::on("tp=2", 1);
    model.assert_whole(&Checkpoint::open(store.clone(), 1).unwrap());
    let refused = model.save(&store, 1, &SaveOptions::default());
    for result in refused {
        assert!(matches!(*result.unwrap_err(), Error::StepTaken { .. }));
    }
    // It may be deleted in this moment, so nobody is told that it stays.
    assert!(matches!(tag(&store, 1, "x"), Err(Error::Deleted { .. })));
    untag(&store, 1, "x").unwrap();
    // Whoever hid it may be at work, or dead.
    let now = plan_for(&store, &last(1));
    assert_eq!((kept(&now), removed(&now)), (vec![1, 3], vec![2]));
    let later = plan_later(&store, &last(1), 2 * HOUR);
    assert_eq!(
        (later.hidden.clone(), removed(&later)),
        (vec![1], vec![1, 2])
    );
    prune(store.as_ref(), &later).unwrap();
    assert_eq!(all_steps(store.as_ref()).unwrap(), [3]);
}

#[test]
fn a_step_that_was_saved_anew_while_it_was_hidden_takes_the_place_of_what_is_hidden() {
    let store = untagged(1..=2);
    let [commit, hidden] = [COMMIT, HIDDEN].map(|name| format!("{}/{name}", step_folder(1)));
    let old = Checkpoint::open(store.clone(), 1).unwrap().data_key(0);
    store.rename(&commit, &hidden, PutMode::Create).unwrap();
    let new = Model::on("dp=2", 7);
    for result in new.save(&store, 1, &replace()) {
        result.unwrap();
    }
    new.assert_whole(&Checkpoint::open(store.clone(), 1).unwrap());
    for _ in 0..2 {
        prune(store.as_ref(), &plan_later(&store, &last(2), 2 * HOUR)).unwrap();
    }
    new.assert_whole(&Checkpoint::open(store.clone(), 1).unwrap());
    assert!(store.head(&hidden).unwrap().is_none());
    assert!(store.head(&old).unwrap().is_none());
}

#[test]
fn a_step_that_came_back_keeps_its_files() {
    let store = untagged(1..=2);
    // In a bucket a rename is two moves, and whoever brings a step back may die between them.
    let [commit, deleted] = [COMMIT, DELETED].map(|name| format!("{}/{name}", step_folder(1)));
    let manifest = store.get(&commit).unwrap();
    store.put(&deleted, &manifest, PutMode::Create).unwrap();
    let plan = PrunePlan {
        purge: vec![1],
        ..PrunePlan::default()
    };
    prune(store.as_ref(), &plan).unwrap();
    assert!(store.head(&deleted).unwrap().is_none());
    Model::on("tp=2", 1).assert_whole(&Checkpoint::open(store, 1).unwrap());
}

#[test]
fn a_mark_of_deletion_that_is_damaged_stops_no_pruning() {
    let store = untagged(1..=3);
    let keep = Keep {
        last: 1,
        ..Keep::default()
    };
    let marked = format!("{}/{DELETED}", step_folder(1));
    store.put(&marked, b"{", PutMode::Create).unwrap();
    store
        .delete(&format!("{}/{COMMIT}", step_folder(1)))
        .unwrap();
    let planned = plan_for(&store, &keep);
    assert!(planned.unusable[&1].contains(&marked), "{planned:?}");
    prune(store.as_ref(), &planned).unwrap();
    assert_eq!(all_steps(store.as_ref()).unwrap(), [1, 3]);
    // Nor a save of the step.
    Model::on("tp=2", 1).save_ok(&store, 1);
}

#[test]
fn a_step_behind_a_link_is_read_and_kept_and_nothing_in_it_is_deleted() {
    let place = tempfile::tempdir().unwrap();
    let (run, archive) = (place.path().join("run"), place.path().join("archive"));
    let store: Arc<dyn Store> = Arc::new(Local::new(&run));
    for step in 1..=3 {
        for result in Model::on("tp=2", step).save(&store, step, &SaveOptions::default()) {
            result.unwrap();
        }
    }
    // Somebody moved one to another disk, which has a folder of its own; another never came to an end there.
    std::fs::rename(run.join("step-00000001"), &archive).unwrap();
    std::os::unix::fs::symlink(&archive, run.join("step-00000001")).unwrap();
    std::fs::create_dir(archive.join("lost+found")).unwrap();
    std::fs::write(archive.join("lost+found/file"), "evidence").unwrap();
    let uncommitted = place.path().join("uncommitted");
    std::fs::create_dir_all(uncommitted.join("attempt")).unwrap();
    std::fs::write(uncommitted.join("attempt/00000.part"), "evidence").unwrap();
    std::os::unix::fs::symlink(&uncommitted, run.join("step-00000000")).unwrap();

    let plan = plan_later(&store, &last(1), 2 * HOUR);
    assert_eq!(kept(&plan), [1, 3]);
    assert_eq!(plan.keep[&1], "it lies behind a link");
    assert_eq!(removed(&plan), [2]);
    assert_eq!(plan.leftovers, Vec::<String>::new());
    assert_eq!(prune(store.as_ref(), &plan).unwrap(), Vec::<u64>::new());
    for kept in [
        "archive/COMMIT",
        "archive/lost+found/file",
        "uncommitted/attempt/00000.part",
    ] {
        assert!(place.path().join(kept).exists(), "{kept}");
    }
    Checkpoint::open(store, 1).unwrap().check().unwrap();
}

#[test]
fn a_run_that_is_pruned_again_and_again_is_read_once() {
    let inner = untagged(1..=4);
    let store = Arc::new(FlakyStore::new(inner.clone()));
    let pruner = Pruner::new(store.clone());
    let now = SystemTime::now;
    let first = pruner.plan(&last(3), Some(HOUR), now()).unwrap();
    assert_eq!((kept(&first), removed(&first)), (vec![2, 3, 4], vec![1]));
    // Nothing of the steps that stay is read any more, only how they look; what goes is read when it goes.
    for step in 2..=4 {
        let reading = Rule::new([Operation::Open], Fault::IO);
        store.add(reading.on(&step_folder(step)));
    }
    assert_eq!(pruner.plan(&last(3), Some(HOUR), now()).unwrap(), first);
    assert_eq!(pruner.prune(&first).unwrap(), Vec::<u64>::new());
    for result in Model::on("tp=2", 5).save(&inner, 5, &SaveOptions::default()) {
        result.unwrap();
    }
    let next = pruner.plan(&last(3), Some(HOUR), now()).unwrap();
    assert_eq!((kept(&next), removed(&next)), (vec![3, 4, 5], vec![2]));
    // Tags are looked for each time, and what changed is read anew.
    store.clear();
    tag(&inner, 2, "best").unwrap();
    let parts = inner.list(&step_folder(4)).unwrap();
    let part = parts.iter().find(|meta| meta.key.ends_with(".part"));
    let part = part.unwrap().key.clone();
    inner.put(&part, b"nonsense", PutMode::Replace).unwrap();
    let changed = pruner.plan(&last(1), Some(HOUR), now()).unwrap();
    assert_eq!(kept(&changed), [2, 5]);
    assert_eq!(removed(&changed), [3]);
    assert_eq!(changed.unusable.keys().copied().collect::<Vec<_>>(), [4]);
}
