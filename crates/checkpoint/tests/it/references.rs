//! What pruning keeps for steps that refer to others, whoever saves at the same time.
//!
//! The interleavings are exhaustive: at every operation of a save a whole pruning runs, and at every operation of a pruning a whole save.

use crate::common::{Model, Specs, checkpointer, copy_of, memory, replace, spec};
use crate::delta::{delta, small, train};
use cairn_checkpoint::retention::{Keep, PrunePlan, plan, prune};
use cairn_checkpoint::{Checkpoint, Checkpointer, SaveOptions, World, all_steps, compact};
use cairn_store::testing::{CrashPlan, CrashStore};
use cairn_store::{Error, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const BLOCK: usize = 64 << 10;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A store that does something just before its n-th operation.
struct Interrupted {
    inner: Arc<dyn Store>,
    operations: AtomicU64,
    at: u64,
    action: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Interrupted {
    fn new(inner: &Arc<dyn Store>, at: u64, action: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            inner: inner.clone(),
            operations: AtomicU64::new(0),
            at,
            action: Mutex::new(Some(Box::new(action))),
        })
    }

    fn next(&self) -> &dyn Store {
        if self.operations.fetch_add(1, Ordering::SeqCst) == self.at {
            let action = self.action.lock().unwrap().take();
            action.expect("there is one n-th operation")();
        }
        self.inner.as_ref()
    }

    fn has_happened(&self) -> bool {
        self.action.lock().unwrap().is_none()
    }
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Interrupted at {}", self.at)
    }
}

impl Store for Interrupted {
    fn url(&self) -> String {
        self.inner.url()
    }
    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        self.next().put(key, bytes, mode)
    }
    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        self.next().create(key, len)
    }
    fn create_up_to(&self, key: &str, most: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        self.next().create_up_to(key, most)
    }
    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        self.next().reader(key)
    }
    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        self.next().head(key)
    }
    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        self.next().list(prefix)
    }
    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.next().list_folders(prefix)
    }
    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        self.next().rename(key, to, mode)
    }
    fn delete(&self, key: &str) -> Result<(), Error> {
        self.next().delete(key)
    }
    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        self.next().sweep(prefix)
    }
    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        self.inner.available_bytes()
    }
}

fn last(count: usize) -> Keep {
    Keep {
        last: count,
        ..Keep::default()
    }
}

fn prune_to(store: &Arc<dyn Store>, count: usize) -> PrunePlan {
    let plan = plan(store, &last(count), None, SystemTime::now()).unwrap();
    prune(store.as_ref(), &plan).unwrap();
    plan
}

/// Prunes as somebody does who comes a day later and takes everything unfinished for abandoned.
fn prune_all_to(store: &Arc<dyn Store>, count: usize) {
    let later = SystemTime::now() + DAY;
    let plan = plan(store, &last(count), Some(Duration::ZERO), later).unwrap();
    prune(store.as_ref(), &plan).unwrap();
}

fn committed(store: &Arc<dyn Store>) -> Vec<Checkpoint> {
    let steps = all_steps(store.as_ref()).unwrap().into_iter();
    steps
        .filter_map(|step| Checkpoint::open(store.clone(), step).ok())
        .collect()
}

/// The data files in the store, and those that committed steps need.
fn files(store: &Arc<dyn Store>) -> (BTreeSet<String>, BTreeSet<String>) {
    let listing = store.list("").unwrap().into_iter().map(|meta| meta.key);
    let data = |key: &String| key.ends_with(".safetensors") || key.ends_with(".delta");
    let here: BTreeSet<String> = listing.filter(data).collect();
    let mut needed = BTreeSet::new();
    for checkpoint in committed(store) {
        let manifest = checkpoint.manifest();
        needed.extend(manifest.base_files());
        let own = format!("/{}/", manifest.attempt);
        needed.extend(here.iter().filter(|key| key.contains(&own)).cloned());
    }
    (here, needed)
}

fn run(store: &Arc<dyn Store>) -> Checkpointer {
    checkpointer(store, &World::single(), &delta())
}

fn save(run: &Checkpointer, model: &Model, step: u64) {
    let saved = model.save_from(run, 0, step, &SaveOptions::default());
    saved.unwrap();
}

/// Steps 1 to 3, the last two of which refer to the first, and what each holds.
fn three_steps(store: &Arc<dyn Store>) -> (Checkpointer, BTreeMap<u64, Model>) {
    let (run, mut models) = (run(store), BTreeMap::new());
    let mut model = small("tp=1");
    for step in 1..=3 {
        model = train(&model, step, &["adapter"]);
        save(&run, &model, step);
        models.insert(step, model.clone());
    }
    (run, models)
}

fn assert_all_whole(store: &Arc<dyn Store>, models: &BTreeMap<u64, Model>, at: u64) {
    let (here, needed) = files(store);
    assert!(needed.is_subset(&here), "operation {at}: {needed:?}");
    for checkpoint in committed(store) {
        models[&checkpoint.step()].assert_whole(&checkpoint);
    }
}

#[test]
fn a_step_that_goes_leaves_what_others_refer_to_and_no_more() {
    let store = memory();
    let (_, models) = three_steps(&store);
    let plan = prune_to(&store, 1);
    let base = plan.held.keys().next().unwrap();
    assert!(base.starts_with("step-00000001/"), "{plan:?}");
    assert_eq!(plan.held[base], "step 3");
    let (here, needed) = files(&store);
    assert_eq!(here, needed);
    assert!(here.contains(base));
    models[&3].assert_whole(&Checkpoint::open(store.clone(), 3).unwrap());
    // Nothing is left to do, and it says so.
    assert!(prune_to(&store, 1).len_bytes == 0);
    assert_eq!(files(&store), (here, needed));
}

#[test]
fn what_was_kept_goes_with_the_last_step_that_refers_to_it() {
    let store = memory();
    let (_, mut models) = three_steps(&store);
    prune_to(&store, 1);
    compact(&store, 3, &World::single(), &Arc::default())
        .unwrap()
        .unwrap();
    prune_all_to(&store, 1);
    assert_eq!(all_steps(store.as_ref()).unwrap(), [3]);
    let (here, needed) = files(&store);
    assert_eq!(here, needed);
    assert_eq!(here.len(), 1);
    models.retain(|step, _| *step == 3);
    assert_all_whole(&store, &models, 0);
}

#[test]
fn a_pruning_at_any_moment_of_a_save_breaks_neither() {
    let start = memory();
    let (_, mut models) = three_steps(&start);
    models.insert(4, train(&models[&3], 4, &["adapter"]));
    for at in 0.. {
        let disk: Arc<dyn Store> = Arc::new(copy_of(start.as_ref()));
        let pruned = disk.clone();
        let store = Interrupted::new(&disk, at, move || remove_up_to_3(&pruned));
        let run = run(&(store.clone() as Arc<dyn Store>));
        save(&run, &models[&4], 4);
        if !store.has_happened() {
            assert!(at > 5);
            break;
        }
        assert_all_whole(&disk, &models, at);
        let saved = Checkpoint::open(disk.clone(), 4).unwrap();
        models[&4].assert_whole(&saved);
    }
}

/// Takes away all that a save of step 4 could refer to, by a plan that nobody should make.
fn remove_up_to_3(store: &Arc<dyn Store>) {
    let old = committed(store).into_iter().filter(|old| old.step() < 4);
    let attempt = |old: Checkpoint| (old.step(), old.manifest().attempt.clone());
    let plan = PrunePlan {
        remove: old.map(attempt).collect(),
        ..PrunePlan::default()
    };
    prune(store.as_ref(), &plan).unwrap();
}

#[test]
fn a_save_at_any_moment_of_a_pruning_breaks_neither() {
    let start = memory();
    let (_, mut models) = three_steps(&start);
    models.insert(4, train(&models[&3], 4, &["adapter"]));
    for at in 0.. {
        let disk: Arc<dyn Store> = Arc::new(copy_of(start.as_ref()));
        let (saved, model) = (disk.clone(), models[&4].clone());
        let store = Interrupted::new(&disk, at, move || save(&run(&saved), &model, 4));
        prune_to(&(store.clone() as Arc<dyn Store>), 1);
        if !store.has_happened() {
            assert!(at > 20);
            break;
        }
        assert_all_whole(&disk, &models, at);
        models[&4].assert_whole(&Checkpoint::open(disk.clone(), 4).unwrap());
    }
}

#[test]
fn what_an_unfinished_save_may_refer_to_stays_until_it_is_abandoned() {
    let store = memory();
    let (_, models) = three_steps(&store);
    let next = train(&models[&3], 4, &["adapter"]);
    // It dies when it is about to put its part.
    let operations = {
        let counting = Arc::new(CrashStore::counting(copy_of(store.as_ref())));
        save(&run(&(counting.clone() as Arc<dyn Store>)), &next, 4);
        counting.operations()
    };
    let plan = CrashPlan::all(operations).find(|plan| plan.at + 3 == operations);
    let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(store.clone(), plan.unwrap()));
    let saved = next.save_from(&run(&crashing), 0, 4, &SaveOptions::default());
    saved.unwrap_err();
    store.delete("step-00000003/COMMIT").unwrap();
    let plan = prune_to(&store, 1);
    assert!(
        plan.held.values().any(|who| who.contains("not committed")),
        "{plan:?}"
    );
    let base = Checkpoint::open(store.clone(), 2)
        .unwrap()
        .manifest()
        .base_files();
    for file in &base {
        assert!(store.head(file).unwrap().is_some());
    }
    compact(&store, 2, &World::single(), &Arc::default()).unwrap();
    prune_all_to(&store, 1);
    let (here, needed) = files(&store);
    assert_eq!(here, needed);
}

#[test]
fn of_a_step_whose_manifest_and_pin_are_damaged_the_part_tells_what_it_refers_to() {
    let store = memory();
    let (_, _) = three_steps(&store);
    let third = Checkpoint::open(store.clone(), 3).unwrap();
    let (base, attempt) = (third.manifest().base_files(), &third.manifest().attempt);
    let pin = format!("step-00000003/{attempt}/00000.pin");
    for key in ["step-00000003/COMMIT", &pin] {
        let mut bytes = store.get(key).unwrap();
        bytes[9] ^= 1;
        store.put(key, &bytes, PutMode::Replace).unwrap();
    }
    prune_to(&store, 1);
    assert!(!base.is_empty());
    for file in &base {
        assert!(store.head(file).unwrap().is_some(), "{file}");
    }
}

#[test]
fn a_crash_while_pruning_references_loses_nothing() {
    let start = memory();
    let (_, models) = three_steps(&start);
    let rehearsal = Arc::new(CrashStore::counting(copy_of(start.as_ref())));
    prune_to(&(rehearsal.clone() as Arc<dyn Store>), 1);
    for crash in CrashPlan::all(rehearsal.operations()) {
        let disk: Arc<dyn Store> = Arc::new(copy_of(start.as_ref()));
        let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(disk.clone(), crash));
        let planned = plan(&disk, &last(1), None, SystemTime::now()).unwrap();
        prune(crashing.as_ref(), &planned).unwrap_err();
        assert_all_whole(&disk, &models, crash.at);
        prune_all_to(&disk, 1);
        let (here, needed) = files(&disk);
        assert_eq!(here, needed, "{crash:?}");
        assert_all_whole(&disk, &models, crash.at);
    }
}

#[derive(Debug, Clone)]
enum Act {
    /// Train, so that some blocks change, and save; replacing the newest step or as a new one.
    Save(Vec<bool>, bool),
    Prune(usize),
    Compact(usize),
    Launch,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let changes = || prop::collection::vec(any::<bool>(), 6);
    let act = prop_oneof![
        5 => (changes(), prop::bool::weighted(0.2)).prop_map(|(blocks, again)| Act::Save(blocks, again)),
        2 => (1..4_usize).prop_map(Act::Prune),
        1 => (0..4_usize).prop_map(Act::Compact),
        1 => Just(Act::Launch),
    ];
    prop::collection::vec(act, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_saved_pruned_and_compacted_every_step_is_what_it_was(acts in acts()) {
        let store = memory();
        let specs: Specs = [("w".to_string(), spec("single", &format!("u8[{}]", 6 * BLOCK - 5000)))].into();
        let (mut model, mut models) = (Model::new(specs, 1), BTreeMap::new());
        let (mut checkpointer, mut newest) = (run(&store), 0);
        for act in acts {
            match act {
                Act::Save(blocks, again) => {
                    for (block, _) in blocks.iter().enumerate().filter(|(_, changes)| **changes) {
                        model.whole.get_mut("w").unwrap()[block * BLOCK + 7] ^= 0x55;
                    }
                    newest += u64::from(!again || newest == 0);
                    model.save_from(&checkpointer, 0, newest, &replace()).unwrap();
                    models.insert(newest, model.clone());
                }
                Act::Prune(count) => {
                    prune_all_to(&store, count);
                    while models.len() > count {
                        models.pop_first();
                    }
                    let (here, needed) = files(&store);
                    prop_assert_eq!(here, needed);
                }
                Act::Compact(index) => {
                    if let Some(step) = models.keys().nth(index) {
                        compact(&store, *step, &World::single(), &Arc::default()).unwrap();
                    }
                }
                Act::Launch => checkpointer = run(&store),
            }
            let steps: Vec<u64> = committed(&store).iter().map(Checkpoint::step).collect();
            prop_assert_eq!(steps, models.keys().copied().collect::<Vec<_>>());
            for (step, model) in &models {
                model.assert_whole(&Checkpoint::open(store.clone(), *step).unwrap());
            }
        }
    }
}
