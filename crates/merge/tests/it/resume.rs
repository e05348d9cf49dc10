//! A merge that dies at any operation, and the one that goes on.

use crate::fixture::{Place, files, fresh, resume};
use cairn_checkpoint::{Error as CheckpointError, Misplaced, UNFINISHED_FOLDER};
use cairn_merge::{Error, Merge, Options, WriteOptions};
use cairn_store::testing::{CrashPlan, CrashStore, Leftovers};
use cairn_store::{Memory, PutMode, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

const TIES: &str = "
merge_method: dare_ties
base_model: $/base
models:
  - {model: $/a, parameters: {weight: 1, density: 0.5}}
  - {model: $/b, parameters: {weight: 0.5, density: 0.5}}
";

fn merge(place: &Place, shard_bytes: u64) -> Merge {
    let options = Options {
        shard_bytes,
        seed: 3,
        threads: 2,
    };
    place.merge_with(TIES, options).unwrap()
}

#[test]
fn whatever_kills_a_merge_its_resumption_has_the_same_bytes() {
    let place = Place::with_models(1);
    for shard_bytes in [100, 1 << 30] {
        let merge = merge(&place, shard_bytes);
        let rehearsal: Arc<CrashStore<Memory>> = Arc::new(CrashStore::counting(Memory::new()));
        let store: Arc<dyn Store> = rehearsal.clone();
        merge.write(&store, &fresh()).unwrap();
        let expected = files(rehearsal.inner());
        for plan in CrashPlan::all(rehearsal.operations()) {
            let disk = Memory::new();
            let dying: Arc<dyn Store> = Arc::new(CrashStore::new(disk.clone(), plan));
            assert!(merge.write(&dying, &fresh()).is_err());
            drop(dying);
            // Before the index, or the only file, is there, nothing is a model.
            let is_whole = published(&disk) == expected;
            let looks_whole = cairn_formats::open(&disk).is_ok();
            if plan.leftovers == Leftovers::Gone && looks_whole && shard_bytes > 100 {
                assert!(files(&disk).get("model.safetensors") == expected.get("model.safetensors"));
            }
            let again: Arc<dyn Store> = Arc::new(disk.clone());
            match merge.write(&again, &resume()) {
                Ok(_) => {}
                // Only the answer to the last deletion was lost.
                Err(error) if is_taken(&error) => assert!(is_whole),
                Err(error) => panic!("{plan:?}: {error}"),
            }
            assert_eq!(files(&disk), expected, "{plan:?}");
        }
    }
}

/// What lies in a folder apart from what is being written.
fn published(store: &dyn Store) -> BTreeMap<String, Vec<u8>> {
    let mut found = files(store);
    found.retain(|key, _| !key.starts_with(UNFINISHED_FOLDER));
    found
}

fn is_taken(error: &Error) -> bool {
    matches!(
        error,
        Error::Checkpoint(CheckpointError::TargetTaken { .. })
    )
}

#[test]
fn whatever_kills_a_merge_that_replaces_a_model_the_old_one_stays_until_the_new_one_is_whole() {
    let place = Place::with_models(1);
    for shard_bytes in [100, 1 << 30] {
        let old: Memory = {
            let disk = Memory::new();
            let store: Arc<dyn Store> = Arc::new(disk.clone());
            let options = Options {
                seed: 9,
                ..Options::default()
            };
            let other = place.merge_with(TIES, options).unwrap();
            other.write(&store, &fresh()).unwrap();
            disk.put("notes.txt", b"mine", PutMode::Create).unwrap();
            disk
        };
        let merge = merge(&place, shard_bytes);
        let mut replace = fresh();
        replace.replace = true;
        let rehearsal: Arc<CrashStore<Memory>> = Arc::new(CrashStore::counting(copy(&old)));
        let store: Arc<dyn Store> = rehearsal.clone();
        merge.write(&store, &replace).unwrap();
        let expected = files(rehearsal.inner());
        assert_eq!(expected["notes.txt"], b"mine");
        for plan in CrashPlan::all(rehearsal.operations()) {
            let disk = copy(&old);
            let dying: Arc<dyn Store> = Arc::new(CrashStore::new(disk.clone(), plan));
            assert!(merge.write(&dying, &replace).is_err());
            if published(&disk) != files(&old) {
                let staged = files(&disk).len() + published(&old).len();
                assert!(
                    staged >= expected.len(),
                    "{plan:?}: all of the new is there"
                );
            }
            let again: Arc<dyn Store> = Arc::new(disk.clone());
            let options = WriteOptions {
                replace: true,
                ..resume()
            };
            merge.write(&again, &options).unwrap();
            assert_eq!(files(&disk), expected, "{plan:?}");
        }
    }
}

fn copy(store: &Memory) -> Memory {
    let copy = Memory::new();
    for (key, bytes) in files(store) {
        copy.put(&key, &bytes, PutMode::Create).unwrap();
    }
    copy
}

#[test]
fn finished_files_are_kept() {
    let place = Place::with_models(2);
    let merge = merge(&place, 100);
    let disk = Memory::new();
    let counting = CrashStore::counting(Memory::new());
    let store: Arc<dyn Store> = Arc::new(counting);
    let files = merge.write(&store, &fresh()).unwrap().files.len();
    let plan = CrashPlan {
        at: 20,
        effect: cairn_store::testing::Effect::None,
        leftovers: Leftovers::Gone,
    };
    let dying: Arc<dyn Store> = Arc::new(CrashStore::new(disk.clone(), plan));
    assert!(merge.write(&dying, &fresh()).is_err());
    let again: Arc<dyn Store> = Arc::new(disk);
    let kept = merge.write(&again, &resume()).unwrap().kept.len();
    assert!(kept > 0 && kept < files, "{kept} of {files}");
}

#[test]
fn another_merge_is_not_taken_up() {
    let place = Place::with_models(1);
    let disk = Memory::new();
    let plan = CrashPlan {
        at: 6,
        effect: cairn_store::testing::Effect::None,
        leftovers: Leftovers::Gone,
    };
    let dying: Arc<dyn Store> = Arc::new(CrashStore::new(disk.clone(), plan));
    assert!(merge(&place, 100).write(&dying, &fresh()).is_err());
    let again: Arc<dyn Store> = Arc::new(disk);
    let other = merge(&place, 200);
    assert!(matches!(
        other.write(&again, &resume()),
        Err(Error::Checkpoint(CheckpointError::CannotResume { .. }))
    ));
    assert!(matches!(
        other.write(&again, &fresh()),
        Err(Error::Checkpoint(CheckpointError::Unfinished { .. }))
    ));
}

#[test]
fn a_model_that_is_there_is_replaced_only_if_asked() {
    let place = Place::with_models(1);
    let merge = merge(&place, 1 << 30);
    let store = place.store("out");
    merge.write(&store, &fresh()).unwrap();
    let error = merge.write(&store, &fresh()).unwrap_err();
    assert!(is_taken(&error), "{error}");
    let mut options = fresh();
    options.replace = true;
    merge.write(&store, &options).unwrap();
}

#[test]
fn files_that_are_no_weights_are_not_overwritten_either() {
    let place = Place::with_models(1);
    let store = place.store("out");
    store.put("README.md", b"mine", PutMode::Create).unwrap();
    store
        .put("pytorch_model.bin", b"mine", PutMode::Create)
        .unwrap();
    let merge = merge(&place, 1 << 30);
    let error = merge.write(&store, &fresh()).unwrap_err();
    assert!(is_taken(&error), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("README.md") && text.contains("pytorch_model.bin"),
        "{text}"
    );
    assert_eq!(store.get("README.md").unwrap(), b"mine");
    assert_eq!(store.list("").unwrap().len(), 2);
}

#[test]
fn a_merge_is_not_written_into_a_model_that_it_reads() {
    let place = Place::with_models(1);
    std::os::unix::fs::symlink(place.path().join("a"), place.path().join("link")).unwrap();
    let merge = merge(&place, 1 << 30);
    let mut replace = fresh();
    replace.replace = true;
    for name in ["a", "base", "b/../a", "link", "a/merged", "a/none/.."] {
        let before = [
            files(place.store("a").as_ref()),
            files(place.store("base").as_ref()),
        ];
        for options in [fresh(), resume(), replace.clone()] {
            let error = merge.write(&place.store(name), &options).unwrap_err();
            let is_source = matches!(
                error,
                Error::Checkpoint(CheckpointError::Misplaced(Misplaced::InSource { .. }))
            );
            assert!(is_source, "{name}: {error}");
        }
        let after = [
            files(place.store("a").as_ref()),
            files(place.store("base").as_ref()),
        ];
        assert_eq!(before, after, "{name}");
    }
}
