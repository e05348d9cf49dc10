//! The double that dies does so at the right moment, and leaves what the plan says.

use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_store::testing::{CrashPlan, CrashStore, Effect, Leftovers, pattern};
use cairn_store::{ALIGNMENT, Error, Memory, PutMode, Store};

const LEN: usize = 2 * ALIGNMENT + 10;

/// Five operations: create, two writes, finish, put.
fn save(store: &dyn Store) -> Result<(), Error> {
    let bytes = pattern(1, LEN);
    let writer = store.create("data", LEN as u64)?;
    writer.write_at(ALIGNMENT as u64, &bytes[ALIGNMENT..])?;
    writer.write_at(0, &bytes[..ALIGNMENT])?;
    writer.finish()?;
    store.put("COMMIT", b"{}", PutMode::Create)
}

/// What is found under `data` after a crash in [`save`].
fn data_after(at: u64, effect: Effect, leftovers: Leftovers) -> Option<Vec<u8>> {
    let disk = Memory::new();
    let plan = CrashPlan {
        at,
        effect,
        leftovers,
    };
    let store = CrashStore::new(disk.clone(), plan);
    assert!(matches!(save(&store), Err(Error::Crashed)));
    disk.get("data").ok()
}

#[test]
fn every_crash_of_a_commit_leaves_all_or_nothing_committed() {
    let rehearsal = CrashStore::counting(Memory::new());
    save(&rehearsal).unwrap();
    assert_eq!(rehearsal.operations(), 5);
    assert!(!rehearsal.has_crashed());
    let mut committed = 0;
    for plan in CrashPlan::all(5) {
        let disk = Memory::new();
        let store = CrashStore::new(disk.clone(), plan);
        assert!(matches!(save(&store), Err(Error::Crashed)), "{plan:?}");
        assert!(store.has_crashed());
        if disk.head("COMMIT").unwrap().is_some() {
            committed += 1;
            assert!(disk.get("data").unwrap() == pattern(1, LEN), "{plan:?}");
        }
    }
    // Only the full effect of the last operation, once for each kind of leftovers.
    assert_eq!(committed, 3);
}

#[test]
fn unfinished_objects_are_gone_partial_or_zeroed() {
    let bytes = pattern(1, LEN);
    let first_write = 1;
    let gone = data_after(first_write, Effect::Full, Leftovers::Gone);
    assert_eq!(gone, None);

    let mut zeroed = bytes.clone();
    zeroed[..ALIGNMENT].fill(0);
    let found = data_after(first_write, Effect::Full, Leftovers::Zeroed);
    assert_eq!(found.as_ref(), Some(&zeroed));
    let found = data_after(first_write, Effect::Full, Leftovers::Partial);
    assert_eq!(found.as_deref(), Some(&zeroed[..LEN / 2]));

    zeroed[ALIGNMENT + (LEN - ALIGNMENT) / 2..].fill(0);
    let torn = data_after(first_write, Effect::Half, Leftovers::Zeroed);
    assert_eq!(torn, Some(zeroed));
    let lost = data_after(first_write, Effect::None, Leftovers::Zeroed);
    assert_eq!(lost, Some(vec![0; LEN]));
}

#[test]
fn creating_and_finishing_have_an_effect_or_none() {
    let (create, finish) = (0, 3);
    let bytes = Some(pattern(1, LEN));
    assert_eq!(data_after(create, Effect::None, Leftovers::Zeroed), None);
    let created = data_after(create, Effect::Full, Leftovers::Zeroed);
    assert_eq!(created, Some(vec![0; LEN]));
    assert_eq!(data_after(finish, Effect::Full, Leftovers::Gone), bytes);
    assert_eq!(data_after(finish, Effect::None, Leftovers::Gone), None);
    assert_eq!(data_after(finish, Effect::Half, Leftovers::Gone), None);
    let partial = data_after(finish, Effect::None, Leftovers::Partial);
    assert_eq!(partial.unwrap().len(), LEN / 2);
}

#[test]
fn nothing_works_after_the_crash() {
    let disk = Memory::new();
    disk.put("old", b"old", PutMode::Create).unwrap();
    let plan = CrashPlan {
        at: 1,
        effect: Effect::Half,
        leftovers: Leftovers::Gone,
    };
    let store = CrashStore::new(disk.clone(), plan);
    let reader = store.reader("old").unwrap();
    let writer = store.create("new", 3).unwrap();
    assert!(matches!(store.delete("old"), Err(Error::Crashed)));
    let crashed = |error| matches!(error, Error::Crashed);
    assert!(store.put("a", b"", PutMode::Replace).is_err_and(crashed));
    assert!(store.create("a", 1).is_err_and(crashed));
    assert!(store.reader("old").is_err_and(crashed));
    assert!(store.get("old").is_err_and(crashed));
    assert!(store.head("old").is_err_and(crashed));
    assert!(store.list("").is_err_and(crashed));
    assert!(store.list_folders("").is_err_and(crashed));
    assert!(store.sweep("").is_err_and(crashed));
    assert!(store.available_bytes().is_err_and(crashed));
    assert!(reader.read_at(0, &mut [0; 3]).is_err_and(crashed));
    assert!(writer.write_at(0, b"new").is_err_and(crashed));
    assert!(writer.finish().is_err_and(crashed));
    assert_eq!(disk.list("").unwrap().len(), 1);
}

#[test]
fn objects_that_were_dropped_before_the_crash_are_no_leftovers() {
    let disk = Memory::new();
    let plan = CrashPlan {
        at: 2,
        effect: Effect::None,
        leftovers: Leftovers::Zeroed,
    };
    let store = CrashStore::new(disk.clone(), plan);
    drop(store.create("dropped", 5).unwrap());
    let _open = store.create("open", 5).unwrap();
    store.put("a", b"", PutMode::Create).unwrap_err();
    assert_eq!(disk.get("open").unwrap(), [0; 5]);
    assert!(disk.head("dropped").unwrap().is_none());
}

#[test]
fn ranks_that_share_the_store_die_together() {
    const RANKS: usize = 8;
    for at in [0, 7, 20, 31] {
        let disk = Memory::new();
        let plan = CrashPlan {
            at,
            effect: Effect::None,
            leftovers: Leftovers::Gone,
        };
        let store = CrashStore::new(disk.clone(), plan);
        let puts = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for rank in 0..RANKS {
                let (store, puts) = (&store, &puts);
                scope.spawn(move || {
                    for step in 0.. {
                        let key = format!("{step}/{rank}");
                        match store.put(&key, b"x", PutMode::Create) {
                            Ok(()) => puts.fetch_add(1, Ordering::Relaxed),
                            Err(Error::Crashed) => break,
                            Err(other) => panic!("{other:?}"),
                        };
                    }
                });
            }
        });
        let puts = puts.into_inner();
        assert_eq!(disk.list("").unwrap().len(), puts);
        // Operations before the fatal one that had not begun when it struck are lost with it.
        assert!(puts as u64 <= at && at - puts as u64 <= RANKS as u64);
    }
}
