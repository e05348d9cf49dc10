//! A rank that will not save a step says so: the others stop waiting, learn why, and the next attempt is a new one for all.

use crate::common::{Model, checkpointer, deadlines, latest, memory, quick, together};
use cairn_checkpoint::{Checkpoint, Checkpointer, Error, SaveOptions, SaveReport, World};
use cairn_store::Store;
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use std::sync::Arc;

const REASON: &str = "the loss is not a number";

fn ranks(store: &Arc<dyn Store>, model: &Model) -> Vec<Checkpointer> {
    let worlds = World::threads(model.world());
    let run = |world| checkpointer(store, world, &quick());
    worlds.iter().map(run).collect()
}

/// All ranks save `step` but `quitter`, which gives it up.
fn save_without(
    quitter: usize,
    ranks: &[Checkpointer],
    model: &Model,
    step: u64,
) -> Vec<Option<Result<SaveReport, Arc<Error>>>> {
    together(ranks, |run, rank| match rank == quitter {
        true => {
            run.give_up(step, REASON);
            None
        }
        false => Some(model.save_from(run, rank, step, &SaveOptions::default())),
    })
}

fn save_all(ranks: &[Checkpointer], model: &Model, step: u64) {
    let save = SaveOptions::default();
    let results = together(ranks, |run, rank| model.save_from(run, rank, step, &save));
    for result in results {
        result.unwrap();
    }
}

fn assert_told(result: Result<SaveReport, Arc<Error>>, quitter: usize) {
    let error = result.unwrap_err();
    let Error::WriterFailed {
        step: 2,
        writer,
        message,
    } = &*error
    else {
        panic!("{error}");
    };
    assert_eq!(*writer, quitter);
    assert!(message.contains(REASON), "{message}");
}

#[test]
fn the_others_learn_who_gave_up_and_why_and_the_step_before_stays() {
    let (before, model) = (Model::on("dp=2,tp=2", 1), Model::on("dp=2,tp=2", 2));
    for quitter in 0..4 {
        let store = memory();
        let ranks = ranks(&store, &model);
        save_all(&ranks, &before, 1);
        for result in save_without(quitter, &ranks, &model, 2)
            .into_iter()
            .flatten()
        {
            assert_told(result, quitter);
        }
        let opened = Checkpoint::open(store.clone(), 2);
        assert!(matches!(opened, Err(Error::Incomplete { .. })));
        before.assert_whole(&latest(&store));
    }
}

#[test]
fn it_does_not_matter_whether_the_others_have_begun() {
    let model = Model::on("tp=2", 2);
    for quits_first in [true, false] {
        let store = memory();
        let ranks = ranks(&store, &model);
        if quits_first {
            ranks[1].give_up(2, REASON);
        }
        let started = model.start(&ranks[0], 0, 2, &SaveOptions::default());
        if !quits_first {
            ranks[1].give_up(2, REASON);
        }
        assert_told(started.unwrap().wait(), 1);
    }
}

#[test]
fn the_next_attempt_is_a_new_one_for_all_ranks() {
    let model = Model::on("dp=2,tp=2", 2);
    let store = memory();
    let ranks = ranks(&store, &model);
    for quitter in [3, 0] {
        for result in save_without(quitter, &ranks, &model, 2)
            .into_iter()
            .flatten()
        {
            assert_told(result, quitter);
        }
    }
    save_all(&ranks, &model, 2);
    model.assert_whole(&latest(&store));
}

#[test]
fn giving_up_a_committed_step_leaves_it_as_it_is() {
    let model = Model::on("tp=2", 2);
    let store = memory();
    let ranks = ranks(&store, &model);
    save_all(&ranks, &model, 2);
    for run in &ranks {
        run.give_up(2, REASON);
    }
    model.assert_whole(&latest(&store));
}

#[test]
fn where_the_note_cannot_be_left_the_others_find_out_by_their_deadline() {
    let model = Model::on("tp=2", 2);
    let flaky = Arc::new(FlakyStore::new(memory()));
    let store: Arc<dyn Store> = flaky.clone();
    let worlds = World::threads(2);
    let options = deadlines(100, 10);
    flaky.add(Rule::new([Operation::Put], Fault::IO).nth(0));
    checkpointer(&store, &worlds[1], &options).give_up(2, REASON);
    let run = checkpointer(&store, &worlds[0], &options);
    let result = model.save_from(&run, 0, 2, &SaveOptions::default());
    let error = result.unwrap_err();
    assert!(
        matches!(&*error, Error::WritersMissing { missing, .. } if missing == &[1]),
        "{error}"
    );
}
