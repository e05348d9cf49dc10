//! Orders in which the moves of commit and retention can meet: somebody else acts between two moves of one process.
//!
//! `crates/protocol` finds such orders; here the real code goes through those that once broke a promise.

use crate::common::{Model, latest, memory, replace};
use cairn_checkpoint::retention::{PrunePlan, prune};
use cairn_checkpoint::tags::tag;
use cairn_checkpoint::{COMMIT, Checkpoint, DELETED, Error, HIDDEN, finish, step_folder};
use cairn_store::{Error as StoreError, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store};
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex};

/// Called before each operation, with its name and key. If it fails, the process ends there.
type Meddle = Box<dyn FnMut(&str, &str) -> Result<(), StoreError> + Send>;

/// A store in which somebody else acts before an operation.
struct Meddled {
    inner: Arc<dyn Store>,
    meddle: Mutex<Meddle>,
}

impl Meddled {
    fn new(
        inner: &Arc<dyn Store>,
        meddle: impl FnMut(&str, &str) -> Result<(), StoreError> + Send + 'static,
    ) -> Self {
        let (inner, meddle) = (inner.clone(), Mutex::new(Box::new(meddle) as Meddle));
        Self { inner, meddle }
    }

    /// Acts once, before the first operation of this name whose key ends so.
    fn once(
        inner: &Arc<dyn Store>,
        operation: &'static str,
        ending: &'static str,
        act: impl FnOnce(&Arc<dyn Store>) + Send + 'static,
    ) -> Self {
        let (store, mut act) = (inner.clone(), Some(act));
        Self::new(inner, move |name, key| {
            if name == operation
                && key.ends_with(ending)
                && let Some(act) = act.take()
            {
                act(&store);
            }
            Ok(())
        })
    }

    fn before(&self, operation: &str, key: &str) -> Result<(), StoreError> {
        (self.meddle.lock().unwrap())(operation, key)
    }
}

impl Debug for Meddled {
    fn fmt(&self, formatter: &mut Formatter) -> std::fmt::Result {
        formatter.write_str("Meddled")
    }
}

impl Store for Meddled {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), StoreError> {
        self.before("put", key)?;
        self.inner.put(key, bytes, mode)
    }

    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, StoreError> {
        self.inner.create(key, len)
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, StoreError> {
        self.before("read", key)?;
        self.inner.reader(key)
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.inner.head(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.before("list", prefix)?;
        self.inner.list(prefix)
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.inner.list_folders(prefix)
    }

    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), StoreError> {
        self.before("rename", key)?;
        self.inner.rename(key, to, mode)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.before("delete", key)?;
        self.inner.delete(key)
    }

    fn sweep(&self, prefix: &str) -> Result<u64, StoreError> {
        self.inner.sweep(prefix)
    }

    fn available_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.inner.available_bytes()
    }
}

fn key(name: &str) -> String {
    format!("{}/{name}", step_folder(1))
}

fn is_there(store: &Arc<dyn Store>, name: &str) -> bool {
    store.head(&key(name)).unwrap().is_some()
}

/// A step whose parts are all there, and its attempt.
fn complete(model: &Model, store: &Arc<dyn Store>) -> String {
    model.save_ok(store, 1);
    let attempt = latest(store).manifest().attempt.clone();
    store.delete(&key(COMMIT)).unwrap();
    attempt
}

fn plan_to_remove(attempt: &str) -> PrunePlan {
    PrunePlan {
        remove: [(1, attempt.to_string())].into(),
        ..PrunePlan::default()
    }
}

/// Somebody else's step, committed, and then hidden by a pruning.
fn commit_and_hide(store: &Arc<dyn Store>, model: &Model) {
    model.save_ok(store, 1);
    store
        .rename(&key(COMMIT), &key(HIDDEN), PutMode::Create)
        .unwrap();
}

#[test]
fn a_commit_that_others_may_count_on_is_not_taken_back_for_what_is_hidden() {
    let store = memory();
    let attempt = complete(&Model::on("tp=2", 1), &store);
    // The step is saved and hidden by others in the moment before `COMMIT` is put.
    let meddled = Meddled::once(&store, "put", COMMIT, |store| {
        commit_and_hide(store, &Model::on("dp=2", 2));
    });
    finish(&meddled, 1).unwrap();
    assert_eq!(latest(&store).manifest().attempt, attempt);
}

#[test]
fn a_step_that_was_hidden_since_the_parts_were_seen_is_not_committed_over() {
    let (model, other) = (Model::on("tp=2", 1), Model::on("dp=2", 2));
    let store = memory();
    complete(&model, &store);
    let theirs = other.clone();
    let mut act = Some(move |store: &Arc<dyn Store>| commit_and_hide(store, &theirs));
    let inner = store.clone();
    let mut parts_read = false;
    let meddled = Meddled::new(&store, move |operation, key| {
        assert!(
            operation != "put" || !key.ends_with(COMMIT),
            "others may see it before it is taken back"
        );
        parts_read |= operation == "read" && key.ends_with(".part");
        // Once the parts were joined, their files are looked for.
        if parts_read
            && operation == "list"
            && let Some(act) = act.take()
        {
            act(&inner);
        }
        Ok(())
    });
    let refused = finish(&meddled, 1).unwrap_err();
    assert!(matches!(refused, Error::StepTaken { .. }), "{refused}");
    other.assert_whole(&latest(&store));
}

#[test]
fn a_replacement_stays_when_another_attempt_takes_its_commit_back() {
    let new = Model::on("dp=2", 7);
    let store = memory();
    complete(&Model::on("tp=2", 1), &store);
    let replacement = new.clone();
    let (inner, mut is_put, mut is_replaced) = (store.clone(), false, false);
    let meddled = Meddled::new(&store, move |name, at| {
        if name == "put" && at.ends_with(COMMIT) && !is_put {
            is_put = true;
            // As a pruning would that deletes the attempt just now.
            let files = inner.list(&step_folder(1)).unwrap();
            let data = files.iter().find(|meta| meta.key.ends_with(".safetensors"));
            inner.delete(&data.unwrap().key).unwrap();
        }
        let takes_back = ["rename", "delete"].contains(&name) && at.ends_with(COMMIT);
        if takes_back && !is_replaced {
            is_replaced = true;
            for result in replacement.save(&inner, 1, &replace()) {
                result.unwrap();
            }
        }
        Ok(())
    });
    finish(&meddled, 1).unwrap_err();
    new.assert_whole(&latest(&store));
}

#[test]
fn a_pruning_confirms_nothing_but_what_it_compared() {
    let (old, new) = (Model::on("tp=2", 1), Model::on("dp=2", 7));
    let store = memory();
    old.save_ok(&store, 1);
    Model::on("tp=2", 2).save_ok(&store, 2);
    let attempt = Checkpoint::open(store.clone(), 1)
        .unwrap()
        .manifest()
        .attempt
        .clone();
    let plan = plan_to_remove(&attempt);
    let (theirs, replacement) = (plan.clone(), new.clone());
    // When the first has compared what it hid, the step is replaced, and another pruning hides that and dies.
    let meddled = Meddled::once(&store, "rename", HIDDEN, move |store| {
        for result in replacement.save(store, 1, &replace()) {
            result.unwrap();
        }
        let dies = Meddled::new(store, |operation, key| {
            match operation == "read" && key.ends_with(HIDDEN) {
                true => Err(StoreError::NotFound { key: key.into() }),
                false => Ok(()),
            }
        });
        let _ = prune(&dies, &theirs);
    });
    prune(&meddled, &plan).unwrap();
    new.assert_whole(&Checkpoint::open(store.clone(), 1).unwrap());
}

#[test]
fn what_is_hidden_is_not_lost_when_another_manifest_is_hidden() {
    let (old, new) = (Model::on("tp=2", 1), Model::on("dp=2", 7));
    let store = memory();
    old.save_ok(&store, 1);
    let attempt = latest(&store).manifest().attempt.clone();
    store
        .rename(&key(COMMIT), &key(HIDDEN), PutMode::Create)
        .unwrap();
    for result in new.save(&store, 1, &replace()) {
        result.unwrap();
    }
    // It finds the step replaced: nothing is hidden over what is hidden.
    let spared = prune(store.as_ref(), &plan_to_remove(&attempt)).unwrap();
    assert_eq!(spared, [1]);
    new.assert_whole(&latest(&store));
}

#[test]
fn a_step_is_pruned_by_one_process_at_a_time() {
    let store = memory();
    Model::on("tp=2", 1).save_ok(&store, 1);
    let attempt = latest(&store).manifest().attempt.clone();
    let plan = plan_to_remove(&attempt);
    let theirs = plan.clone();
    let meddled = Meddled::once(&store, "rename", HIDDEN, move |store| {
        assert_eq!(prune(store.as_ref(), &theirs).unwrap(), [1]);
        assert!(is_there(store, HIDDEN) && !is_there(store, DELETED));
    });
    assert_eq!(prune(&meddled, &plan).unwrap(), [0; 0]);
    assert_eq!(store.list("").unwrap().len(), 0);
}

#[test]
fn a_step_whose_files_went_before_its_commit_came_again_is_deleted_for_good() {
    let store = memory();
    Model::on("tp=2", 1).save_ok(&store, 1);
    // A pruning died when it had deleted a part, and a writer that stood still put `COMMIT` once more.
    let manifest = store.get(&key(COMMIT)).unwrap();
    store
        .put(&key(DELETED), &manifest, PutMode::Create)
        .unwrap();
    let files = store.list(&step_folder(1)).unwrap();
    let part = files.iter().find(|meta| meta.key.ends_with(".part"));
    store.delete(&part.unwrap().key).unwrap();
    assert!(matches!(tag(&store, 1, "x"), Err(Error::Deleted { .. })));
    store.delete(&key("x.tag")).unwrap();
    let plan = PrunePlan {
        beside: vec![1],
        ..PrunePlan::default()
    };
    prune(store.as_ref(), &plan).unwrap();
    assert_eq!(store.list("").unwrap().len(), 0);
    Model::on("tp=2", 3).save_ok(&store, 1);
}
