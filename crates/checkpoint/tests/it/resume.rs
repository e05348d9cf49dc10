//! Exports and rewrites that are cut short: what a reader finds then, and that going on ends with the same bytes.

use crate::common::{Model, memory};
use cairn_checkpoint::{
    Checkpoint, DcpContents, Error, NewCheckpoint, OnUnfinished, RewriteOptions, SaveOptions,
    Source, UNFINISHED_FOLDER, export_dcp, export_hf, export_safetensors, model_files, rewrite,
};
use cairn_formats::Error as FormatError;
use cairn_formats::hf::INDEX_FILE;
use cairn_store::testing::{CrashPlan, CrashStore, Fault, FlakyStore, Operation, Rule};
use cairn_store::{Memory, PutMode, Store};
use crc_fast::{CrcAlgorithm, checksum};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// A file for every tensor, and an index.
    Folder,
    /// One file.
    File,
    Torch,
}

const KINDS: [Kind; 3] = [Kind::Folder, Kind::File, Kind::Torch];

fn source(step: u64) -> Checkpoint {
    let store = memory();
    Model::on("tp=2", step).save_ok(&store, step);
    Checkpoint::open(store, step).unwrap()
}

fn resuming(identity: &str) -> RewriteOptions {
    RewriteOptions {
        identity: identity.into(),
        unfinished: OnUnfinished::Resume,
        ..RewriteOptions::default()
    }
}

fn replacing(identity: &str) -> RewriteOptions {
    RewriteOptions {
        replace: true,
        ..resuming(identity)
    }
}

fn export(
    kind: Kind,
    source: &dyn Source,
    store: &Arc<dyn Store>,
    options: &RewriteOptions,
) -> Result<(), Error> {
    let names = source.names();
    match kind {
        Kind::Folder => export_hf(source, store, &names, 1 << 10, options)?,
        Kind::File => export_safetensors(source, store, "model.safetensors", &names, options)?,
        Kind::Torch => {
            let contents = DcpContents {
                names: &names,
                values: &BTreeMap::new(),
                shard_bytes: 1 << 10,
            };
            export_dcp(source, store, contents, options)?
        }
    };
    Ok(())
}

/// Every object of a store, with a checksum of its bytes.
fn objects(store: &dyn Store) -> BTreeMap<String, u64> {
    let listing = store.list("").unwrap().into_iter();
    let sum = |key: &str| checksum(CrcAlgorithm::Crc64Nvme, &store.get(key).unwrap());
    listing
        .map(|meta| (meta.key.clone(), sum(&meta.key)))
        .collect()
}

/// Whether the folder opens as a model; a damaged one is a failure of the test.
fn opens(store: &dyn Store) -> bool {
    match cairn_formats::open(store) {
        Ok(_) => true,
        Err(FormatError::NotAModel { .. } | FormatError::Unfinished { .. }) => false,
        Err(error) => panic!("a reader finds what is neither a model nor none: {error}"),
    }
}

/// A folder with the export of step `step`.
fn exported(kind: Kind, step: u64) -> Memory {
    let store = Memory::new();
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    export(kind, &source(step), &shared, &RewriteOptions::default()).unwrap();
    store
}

/// What a reader needs who goes by the names of files: those of a set say how many they are.
fn data(mut objects: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    objects.retain(|key, _| !key.starts_with(UNFINISHED_FOLDER) && key != INDEX_FILE);
    objects
}

fn copy_of(store: &Memory) -> Memory {
    let copy = Memory::new();
    for meta in store.list("").unwrap() {
        let bytes = store.get(&meta.key).unwrap();
        copy.put(&meta.key, &bytes, PutMode::Create).unwrap();
    }
    copy
}

#[test]
fn a_crash_at_any_moment_leaves_the_old_model_the_new_one_or_none() {
    let source = source(2);
    for kind in KINDS {
        // A single file replaces only itself.
        let old_kind = if kind == Kind::File {
            kind
        } else {
            Kind::Folder
        };
        for old in [Memory::new(), exported(old_kind, 1)] {
            let new = objects(&exported(kind, 2));
            let before = objects(&old);
            let rehearsal = Arc::new(CrashStore::counting(copy_of(&old)));
            let shared: Arc<dyn Store> = rehearsal.clone();
            export(kind, &source, &shared, &replacing("s")).unwrap();
            assert_eq!(objects(rehearsal.inner()), new, "{kind:?}");
            for plan in CrashPlan::all(rehearsal.operations()) {
                let disk = copy_of(&old);
                let dying: Arc<dyn Store> = Arc::new(CrashStore::new(disk.clone(), plan));
                export(kind, &source, &dying, &replacing("s")).unwrap_err();
                if opens(&disk) {
                    let found = data(objects(&disk));
                    let is_whole = found == data(before.clone()) || found == data(new.clone());
                    assert!(is_whole, "{kind:?} {plan:?}");
                }
                let disk: Arc<dyn Store> = Arc::new(disk);
                export(kind, &source, &disk, &replacing("s")).unwrap();
                assert!(objects(disk.as_ref()) == new, "{kind:?} {plan:?}");
            }
        }
    }
}

fn new_step(step: u64) -> NewCheckpoint {
    let model = Model::on("dp=3", 2);
    NewCheckpoint {
        step,
        world: model.world(),
        tensors: model.specs,
        aliases: BTreeMap::new(),
        values: BTreeMap::new(),
        save: SaveOptions {
            assets: [("config.json".to_string(), b"{}".to_vec())].into(),
            ..SaveOptions::default()
        },
    }
}

#[test]
fn a_new_step_that_was_cut_short_is_taken_up_again() {
    let source = source(2);
    let new = new_step(7);
    // Little memory: one file after the other.
    let options = RewriteOptions {
        memory_bytes: 1,
        ..resuming("s")
    };
    let rehearsal = Arc::new(CrashStore::counting(Memory::new()));
    let shared: Arc<dyn Store> = rehearsal.clone();
    rewrite(&source, &shared, &new, &options).unwrap();
    let keys = objects(rehearsal.inner()).len();
    for plan in CrashPlan::all(rehearsal.operations()) {
        let disk = Memory::new();
        let dying: Arc<dyn Store> = Arc::new(CrashStore::new(disk.clone(), plan));
        rewrite(&source, &dying, &new, &options).unwrap_err();
        let disk: Arc<dyn Store> = Arc::new(disk);
        match rewrite(&source, &disk, &new, &options) {
            // Only the answer was lost, and there is nothing to take up.
            Err(Error::StepTaken { step: 7, .. }) => {}
            done => assert_eq!(done.unwrap().files, 3, "{plan:?}"),
        }
        let checkpoint = Checkpoint::open(disk.clone(), 7).unwrap();
        Model::on("dp=3", 2).assert_whole(&checkpoint);
        assert_eq!(checkpoint.assets().unwrap()[0].1, b"{}");
        assert_eq!(objects(disk.as_ref()).len(), keys, "{plan:?}");
    }
}

/// A folder in which an export ended after its first file.
fn cut_short() -> Arc<FlakyStore<Memory>> {
    let store = Arc::new(FlakyStore::new(Memory::new()));
    store.add(Rule::new([Operation::Create], Fault::NO_SPACE).nth(1));
    let shared: Arc<dyn Store> = store.clone();
    let error = export(Kind::Folder, &source(2), &shared, &resuming("s")).unwrap_err();
    let full = matches!(
        &error,
        Error::Store {
            source: cairn_store::Error::NoSpace { .. },
            ..
        }
    );
    assert!(full, "{error:?}");
    store.clear();
    store
}

#[test]
fn a_full_disk_leaves_nothing_that_looks_finished_and_the_rest_is_written_later() {
    let store = cut_short();
    assert!(!opens(store.as_ref()));
    assert!(model_files(store.as_ref()).unwrap().is_empty());
    // What is whole already is not written again.
    store.add(Rule::new([Operation::Create], Fault::IO).on("model-00001"));
    let shared: Arc<dyn Store> = store.clone();
    export(Kind::Folder, &source(2), &shared, &resuming("s")).unwrap();
    assert_eq!(objects(store.inner()), objects(&exported(Kind::Folder, 2)));
}

#[test]
fn another_source_or_other_options_do_not_go_on() {
    let store: Arc<dyn Store> = cut_short();
    let before = objects(store.as_ref());
    let other_source = export(Kind::Folder, &source(2), &store, &resuming("t"));
    let source = source(2);
    let other_files = export_hf(&source, &store, &source.names(), u64::MAX, &resuming("s"));
    for result in [other_source, other_files.map(drop)] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::CannotResume { .. }), "{error}");
    }
    assert_eq!(objects(store.as_ref()), before);
}

#[test]
fn what_was_cut_short_is_refused_or_deleted_as_asked() {
    let store: Arc<dyn Store> = cut_short();
    let options = |unfinished| RewriteOptions {
        unfinished,
        ..RewriteOptions::default()
    };
    let refuse = options(OnUnfinished::Refuse);
    // A file of its own has nothing to do with the folder it lies in.
    export(Kind::File, &source(2), &store, &refuse).unwrap();
    let refused = export(Kind::Torch, &source(2), &store, &refuse);
    assert!(matches!(refused, Err(Error::Unfinished { .. })));
    store.delete("model.safetensors").unwrap();
    let discard = options(OnUnfinished::Discard);
    export(Kind::Torch, &source(2), &store, &discard).unwrap();
    assert_eq!(objects(store.as_ref()), objects(&exported(Kind::Torch, 2)));
}

#[test]
fn a_model_is_not_touched_by_an_export_that_cannot_be_written() {
    for fault in [Operation::Write, Operation::Finish] {
        let old = exported(Kind::Folder, 1);
        let before = objects(&old);
        let store = Arc::new(FlakyStore::new(old.clone()));
        store.add(Rule::new([fault], Fault::NO_SPACE).nth(2));
        let shared: Arc<dyn Store> = store;
        export(Kind::Folder, &source(2), &shared, &replacing("s")).unwrap_err();
        let mut found = objects(&old);
        found.retain(|key, _| !key.starts_with(UNFINISHED_FOLDER));
        assert_eq!(found, before);
    }
}
