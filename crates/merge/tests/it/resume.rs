//! A merge that dies at any operation, and the one that goes on.

use crate::fixture::{Place, files, fresh, resume};
use cairn_merge::{Error, Merge, Options};
use cairn_store::testing::{CrashPlan, CrashStore, Leftovers};
use cairn_store::{Memory, Store};
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
            let is_whole = disk.head("merge_in_progress.json").unwrap().is_none();
            let looks_whole = cairn_formats::open(&disk).is_ok();
            if plan.leftovers == Leftovers::Gone && looks_whole && shard_bytes > 100 {
                assert!(files(&disk).get("model.safetensors") == expected.get("model.safetensors"));
            }
            let again: Arc<dyn Store> = Arc::new(disk.clone());
            match merge.write(&again, &resume()) {
                Ok(_) => {}
                // Only the answer to the last deletion was lost, or nothing had begun.
                Err(Error::TargetTaken { .. }) => assert!(is_whole),
                Err(error) => panic!("{plan:?}: {error}"),
            }
            assert_eq!(files(&disk), expected, "{plan:?}");
        }
    }
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
        Err(Error::OtherMerge { .. })
    ));
    assert!(matches!(
        other.write(&again, &fresh()),
        Err(Error::TargetTaken { .. })
    ));
}

#[test]
fn a_model_that_is_there_is_replaced_only_if_asked() {
    let place = Place::with_models(1);
    let merge = merge(&place, 1 << 30);
    let store = place.store("out");
    merge.write(&store, &fresh()).unwrap();
    let error = merge.write(&store, &fresh()).unwrap_err();
    assert!(matches!(&error, Error::TargetTaken { files, .. } if files == &["model.safetensors"]));
    let mut options = fresh();
    options.replace = true;
    merge.write(&store, &options).unwrap();
}
