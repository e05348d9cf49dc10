//! A repair makes a step whole from a copy, from two damaged copies if it can, and never from something else.

use crate::common::{Model, copy_of, memory};
use cairn_checkpoint::repair::{FileState, RepairReport, repair};
use cairn_checkpoint::{Checkpoint, Error, SaveOptions, StepState, survey};
use cairn_store::testing::{CrashPlan, CrashStore};
use cairn_store::{PutMode, Store};
use std::sync::Arc;

fn model() -> Model {
    Model::on("tp=2", 1)
}

/// A way to damage a store.
type Spoil<'a> = &'a dyn Fn(&dyn Store);

/// A run and a copy of it.
fn twins() -> (Arc<dyn Store>, Arc<dyn Store>) {
    let store = memory();
    let save = SaveOptions {
        assets: [(
            "config.json".to_string(),
            br#"{"hidden_size": 64}"#.to_vec(),
        )]
        .into(),
        ..SaveOptions::default()
    };
    for result in model().save(&store, 1, &save) {
        result.unwrap();
    }
    let copy = Arc::new(copy_of(store.as_ref()));
    (store, copy)
}

fn mend(store: &Arc<dyn Store>, copy: &Arc<dyn Store>) -> RepairReport {
    repair(store, 1, copy, false, &|_| ()).unwrap()
}

fn is_whole(store: &Arc<dyn Store>) -> bool {
    matches!(
        survey(store, 1, 1.0, &|_| ()).unwrap(),
        StepState::Whole(..)
    )
}

fn repaired(report: &RepairReport) -> Vec<&str> {
    let files = report.files.iter();
    let mended = files.filter(|file| file.state == FileState::Repaired);
    mended.map(|file| file.file.as_str()).collect()
}

fn change(store: &dyn Store, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = store.get(key).unwrap();
    change(&mut bytes);
    store.put(key, &bytes, PutMode::Replace).unwrap();
}

/// The files of the step that a reader needs.
fn files(store: &dyn Store) -> Vec<String> {
    let listing = store.list("").unwrap().into_iter().map(|meta| meta.key);
    let ours = |key: &String| !key.ends_with(".timeline") && !key.ends_with(".index.json");
    listing.filter(ours).collect()
}

#[test]
fn every_file_that_is_damaged_cut_short_or_missing_is_mended() {
    let (start, copy) = twins();
    let files = files(start.as_ref());
    assert_eq!(files.len(), 6, "{files:?}");
    for key in files {
        let spoil: [Spoil; 3] = [
            &|store| change(store, &key, |bytes| bytes[10] ^= 0x40),
            &|store| change(store, &key, |bytes| bytes.truncate(bytes.len() / 2)),
            &|store| store.delete(&key).unwrap(),
        ];
        for (way, spoil) in spoil.iter().enumerate() {
            let store: Arc<dyn Store> = Arc::new(copy_of(start.as_ref()));
            spoil(store.as_ref());
            assert!(!is_whole(&store));
            let planned = repair(&store, 1, &copy, true, &|_| ()).unwrap();
            assert!(!is_whole(&store), "a dry run writes nothing");
            let report = mend(&store, &copy);
            assert_eq!(planned, report);
            assert_eq!(repaired(&report), [key.as_str()], "way {way}");
            assert!(is_whole(&store), "{key} way {way}");
            model().assert_whole(&Checkpoint::open(store.clone(), 1).unwrap());
            assert!(repaired(&mend(&store, &copy)).is_empty());
        }
    }
}

#[test]
fn two_damaged_copies_make_a_whole_one() {
    let (store, copy) = twins();
    let key = Checkpoint::open(store.clone(), 1).unwrap().data_key(0);
    let other = Checkpoint::open(store.clone(), 1).unwrap().data_key(1);
    change(store.as_ref(), &key, |bytes| {
        *bytes.last_mut().unwrap() ^= 1
    });
    change(copy.as_ref(), &other, |bytes| {
        *bytes.last_mut().unwrap() ^= 1
    });
    assert_eq!(repaired(&mend(&store, &copy)), [key.as_str()]);
    assert!(is_whole(&store));
    assert_eq!(repaired(&mend(&copy, &store)), [other.as_str()]);
    assert!(is_whole(&copy));
}

#[test]
fn what_is_damaged_in_both_is_told_and_left_as_it_is() {
    let (store, copy) = twins();
    let key = Checkpoint::open(store.clone(), 1).unwrap().data_key(0);
    for side in [&store, &copy] {
        change(side.as_ref(), &key, |bytes| *bytes.last_mut().unwrap() ^= 1);
    }
    let before = store.get(&key).unwrap();
    let report = mend(&store, &copy);
    let lost = report
        .files
        .iter()
        .find(|file| file.state == FileState::Lost);
    assert_eq!(lost.unwrap().file, key);
    assert!(!report.is_whole());
    assert_eq!(store.get(&key).unwrap(), before);
}

#[test]
fn another_checkpoint_is_no_copy() {
    let (store, _) = twins();
    let (other, _) = twins();
    let key = Checkpoint::open(store.clone(), 1).unwrap().data_key(0);
    store.delete(&key).unwrap();
    let refused = repair(&store, 1, &other, false, &|_| ());
    assert!(
        matches!(refused, Err(Error::NotACopy { .. })),
        "{refused:?}"
    );
    // Without a COMMIT to compare, and with other parts, too.
    store.delete("step-00000001/COMMIT").unwrap();
    let refused = repair(&store, 1, &other, false, &|_| ());
    assert!(
        matches!(refused, Err(Error::NotACopy { .. })),
        "{refused:?}"
    );
    let refused = repair(&store, 1, &memory(), false, &|_| ());
    assert!(
        matches!(refused, Err(Error::Incomplete { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_crash_while_mending_leaves_nothing_worse_and_the_next_repair_ends_it() {
    let (start, copy) = twins();
    let checkpoint = Checkpoint::open(start.clone(), 1).unwrap();
    change(start.as_ref(), &checkpoint.data_key(0), |bytes| {
        *bytes.last_mut().unwrap() ^= 1
    });
    start.delete(&checkpoint.data_key(1)).unwrap();
    let part = checkpoint.data_key(1).replace(".safetensors", ".part");
    change(start.as_ref(), &part, |bytes| bytes[0] ^= 1);
    change(start.as_ref(), "step-00000001/COMMIT", |bytes| {
        bytes[0] ^= 1
    });
    let rehearsal = Arc::new(CrashStore::counting(copy_of(start.as_ref())));
    let rehearsed: Arc<dyn Store> = rehearsal.clone();
    assert!(mend(&rehearsed, &copy).is_whole());
    for crash in CrashPlan::all(rehearsal.operations()) {
        let disk = copy_of(start.as_ref());
        let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(disk.clone(), crash));
        repair(&crashing, 1, &copy, false, &|_| ()).unwrap_err();
        let disk: Arc<dyn Store> = Arc::new(disk);
        assert!(mend(&disk, &copy).is_whole(), "{crash:?}");
        assert!(is_whole(&disk), "{crash:?}");
        let left = disk.list("").unwrap();
        assert!(
            left.iter().all(|meta| !meta.key.ends_with(".repair")),
            "{crash:?}"
        );
    }
}
