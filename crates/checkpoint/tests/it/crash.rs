//! All ranks stop at the n-th operation, for every n and every way to stop; the next process finds the old state or the new one.

use crate::common::{Model, copy_of, deadlines, latest, replace};
use crate::delta::{small, train};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, Options, SaveOptions, SaveReport, World, finish, unfinished,
};
use cairn_store::testing::{CrashPlan, CrashStore};
use cairn_store::{Memory, Store};
use std::sync::Arc;

const MESH: &str = "dp=2,tp=2";

/// More operations than a save has: beyond its end the store outlives it.
const MARGIN: u64 = 3;

/// A run with or without a committed step, and a save that will not get to its end.
struct Scenario {
    before: Option<(u64, Model)>,
    step: u64,
    next: Model,
    save: SaveOptions,
    /// Whether saves refer to earlier ones.
    delta: bool,
}

type Results = Vec<Result<SaveReport, Arc<Error>>>;

impl Scenario {
    /// Tries every crash, and returns how many of them left a save that could be finished.
    fn try_every_crash(&self) -> usize {
        let start = self.start();
        let rehearsal = Arc::new(CrashStore::counting(copy_of(&start)));
        for result in self.save_next(&(rehearsal.clone() as Arc<dyn Store>)) {
            result.unwrap();
        }
        CrashPlan::all(rehearsal.operations() + MARGIN)
            .filter(|plan| self.try_crash(&start, *plan))
            .count()
    }

    fn try_crash(&self, start: &Memory, plan: CrashPlan) -> bool {
        let disk = copy_of(start);
        let crashing = Arc::new(CrashStore::new(disk.clone(), plan));
        let results = self.save_next(&(crashing.clone() as Arc<dyn Store>));
        assert!(crashing.has_crashed() || results.iter().all(Result::is_ok));
        let disk: Arc<dyn Store> = Arc::new(disk);
        let committed = self.is_committed(&disk, start);
        self.check(&disk, committed, &results, plan);
        let finished = self.finish(&disk, committed);
        self.launch_again(&disk);
        finished
    }

    fn start(&self) -> Memory {
        let disk = Memory::new();
        if let Some((step, model)) = &self.before {
            let store = Arc::new(disk.clone()) as Arc<dyn Store>;
            let worlds = World::threads(model.world());
            let save = SaveOptions::default();
            for result in model.launch(&store, &worlds, *step, &save, &self.options()) {
                result.unwrap();
            }
        }
        disk
    }

    fn save_next(&self, store: &Arc<dyn Store>) -> Results {
        let worlds = World::threads(self.next.world());
        self.next
            .launch(store, &worlds, self.step, &self.save, &self.options())
    }

    fn options(&self) -> Options {
        Options {
            delta: self.delta,
            ..deadlines(5000, 2500)
        }
    }

    /// Whether the step has a manifest that it did not have at the start.
    fn is_committed(&self, disk: &Arc<dyn Store>, start: &Memory) -> bool {
        let attempt = |store: Arc<dyn Store>| {
            let opened = Checkpoint::open(store, self.step);
            opened.ok().map(|c| c.manifest().attempt.clone())
        };
        attempt(disk.clone()) != attempt(Arc::new(start.clone()))
    }

    fn check(&self, disk: &Arc<dyn Store>, committed: bool, results: &Results, plan: CrashPlan) {
        let reported = results.iter().any(Result::is_ok);
        assert!(committed || !reported, "{plan:?}: {results:?}");
        let expected = match &self.before {
            _ if committed => Some((self.step, &self.next)),
            Some((step, model)) => Some((*step, model)),
            None => None,
        };
        let Some((step, model)) = expected else {
            let nothing = Checkpointer::new(disk.clone(), World::single()).latest();
            let Err(Error::NothingUsable { skipped, .. }) = nothing else {
                panic!("{plan:?}: {nothing:?}");
            };
            assert!(skipped.is_empty(), "{plan:?}: {skipped:?}");
            return;
        };
        let checkpoint = latest(disk);
        assert_eq!(checkpoint.step(), step, "{plan:?}");
        model.assert_whole(&checkpoint);
    }

    /// Finishes a save whose parts are all there, on a disk of its own. Returns whether there was one.
    fn finish(&self, disk: &Arc<dyn Store>, committed: bool) -> bool {
        let disk: Arc<dyn Store> = Arc::new(copy_of(disk));
        let replaces = self
            .before
            .as_ref()
            .is_some_and(|(step, _)| *step == self.step);
        let attempts = unfinished(disk.as_ref(), self.step).unwrap();
        let complete = attempts.iter().any(|attempt| attempt.is_complete());
        let finished = finish(disk.as_ref(), self.step);
        if committed || replaces {
            finished.unwrap();
            return false;
        }
        match complete {
            true => self.next.assert_whole(&latest(&disk)),
            false => assert!(matches!(finished, Err(Error::Incomplete { .. }))),
        }
        complete
    }

    /// The next launch saves the same step, whatever the last one left.
    fn launch_again(&self, disk: &Arc<dyn Store>) {
        for result in self.next.save(disk, self.step, &replace()) {
            result.unwrap();
        }
        self.next.assert_whole(&latest(disk));
    }
}

#[test]
fn a_crash_while_saving_keeps_the_step_before_or_gives_the_new_one() {
    let scenario = Scenario {
        before: Some((1, Model::on(MESH, 1))),
        step: 2,
        next: Model::on(MESH, 2),
        save: SaveOptions::default(),
        delta: false,
    };
    assert!(scenario.try_every_crash() > 0);
}

#[test]
fn a_crash_while_replacing_a_step_keeps_the_old_one_or_gives_the_new_one() {
    let scenario = Scenario {
        before: Some((1, Model::on(MESH, 1))),
        step: 1,
        next: Model::on(MESH, 2),
        save: replace(),
        delta: false,
    };
    assert_eq!(scenario.try_every_crash(), 0);
}

#[test]
fn a_crash_of_the_first_save_leaves_nothing_or_all_of_it() {
    let scenario = Scenario {
        before: None,
        step: 1,
        next: Model::on(MESH, 1),
        save: SaveOptions {
            tags: vec!["first".into()],
            assets: [("config.json".to_string(), b"{}".to_vec())].into(),
            ..SaveOptions::default()
        },
        delta: false,
    };
    assert!(scenario.try_every_crash() > 0);
}

#[test]
fn a_crash_of_a_save_that_refers_to_the_step_before_harms_neither() {
    let before = small("tp=2");
    for (step, save) in [(2, SaveOptions::default()), (1, replace())] {
        let scenario = Scenario {
            next: train(&before, 2, &["adapter"]),
            before: Some((1, before.clone())),
            step,
            save,
            delta: true,
        };
        scenario.try_every_crash();
    }
}
