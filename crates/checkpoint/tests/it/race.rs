//! Launches that meet at one step, and writers that never come, come late, or leave early.

use crate::common::{Model, checkpointer, deadlines, latest, memory, quick, replace, together};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, SaveOptions, SaveReport, World, finish, unfinished,
};
use cairn_store::Store;
use cairn_store::testing::{
    CrashPlan, CrashStore, Effect, Fault, FlakyStore, Leftovers, Operation, Rule,
};
use std::sync::{Arc, Barrier};
use std::thread;

type Results = Vec<Result<SaveReport, Arc<Error>>>;

fn launch(name: &str, size: usize) -> Vec<World> {
    (0..size)
        .map(|rank| World::new(rank, size, name).unwrap().unique())
        .collect()
}

/// Two launches save one step at the same moment.
fn meet(store: &Arc<dyn Store>, models: [&Model; 2], save: &SaveOptions) -> [Results; 2] {
    let barrier = Barrier::new(2);
    // The others take over at once, so that many committers meet.
    let options = deadlines(20_000, 0);
    thread::scope(|scope| {
        let launches = models.map(|model| {
            scope.spawn(|| {
                let worlds = World::threads(model.world());
                barrier.wait();
                model.launch(store, &worlds, 7, save, &options)
            })
        });
        launches.map(|launch| launch.join().unwrap())
    })
}

#[test]
fn of_two_launches_one_takes_the_step_and_the_other_is_told_so_on_every_rank() {
    let models = [Model::on("tp=2", 1), Model::on("dp=3", 2)];
    for _ in 0..100 {
        let store = memory();
        let results = meet(&store, [&models[0], &models[1]], &SaveOptions::default());
        let winner = usize::from(results[1][0].is_ok());
        for result in &results[winner] {
            result.as_ref().unwrap();
        }
        for result in &results[1 - winner] {
            let taken = result.as_ref().unwrap_err();
            assert!(
                matches!(**taken, Error::StepTaken { step: 7, .. }),
                "{taken}"
            );
        }
        models[winner].assert_whole(&latest(&store));
    }
}

#[test]
fn of_two_launches_that_replace_a_step_one_stays_whole() {
    let models = [Model::on("tp=2", 1), Model::on("dp=3", 2)];
    for _ in 0..50 {
        let store = memory();
        Model::on("tp=2", 0).save_ok(&store, 7);
        let results = meet(&store, [&models[0], &models[1]], &replace());
        let attempts = results.map(|ranks| {
            let reports: Vec<SaveReport> = ranks.into_iter().map(Result::unwrap).collect();
            reports[0].attempt.clone()
        });
        let checkpoint = latest(&store);
        let attempt = &checkpoint.manifest().attempt;
        let stays = attempts.iter().position(|a| a == attempt).unwrap();
        models[stays].assert_whole(&checkpoint);
    }
}

#[test]
fn writers_that_never_come_are_named_and_nothing_is_committed() {
    let model = Model::on("dp=2,tp=2", 1);
    for absent in [vec![2], vec![0], vec![1, 3], vec![0, 1, 2]] {
        let store = memory();
        let mut worlds = World::threads(4);
        worlds.retain(|world| !absent.contains(&world.rank()));
        let options = deadlines(150, 50);
        for result in model.launch(&store, &worlds, 1, &SaveOptions::default(), &options) {
            let error = result.unwrap_err();
            let Error::WritersMissing {
                missing, waited, ..
            } = &*error
            else {
                panic!("{error}");
            };
            assert_eq!(*missing, absent);
            assert!(*waited >= options.commit_timeout);
        }
        let opened = Checkpoint::open(store.clone(), 1);
        assert!(matches!(opened, Err(Error::Incomplete { .. })));
        assert_eq!(unfinished(store.as_ref(), 1).unwrap()[0].missing, absent);
    }
}

/// All ranks of `session` but `late` save step 1 and give up.
fn give_up_on(late: usize, session: &str, model: &Model, store: &Arc<dyn Store>) {
    let mut worlds = launch(session, model.world());
    worlds.remove(late);
    let options = deadlines(50, 10);
    for result in model.launch(store, &worlds, 1, &SaveOptions::default(), &options) {
        result.unwrap_err();
    }
}

/// A store that dies instead of creating `COMMIT`, for a rank that writes its file and its part.
fn dies_at_commit(store: &Arc<dyn Store>) -> Arc<dyn Store> {
    let plan = CrashPlan {
        at: 4,
        effect: Effect::None,
        leftovers: Leftovers::Gone,
    };
    Arc::new(CrashStore::new(store.clone(), plan))
}

#[test]
fn a_late_writer_does_not_complete_what_the_others_gave_up_on() {
    let model = Model::on("dp=2,tp=2", 1);
    for late in 0..4 {
        let store = memory();
        give_up_on(late, "job", &model, &store);
        let worlds = &launch("job", 4)[late..=late];
        let results = model.launch(
            &store,
            worlds,
            1,
            &SaveOptions::default(),
            &deadlines(500, 10),
        );
        // Its state may be that of a later moment.
        let error = results[0].as_ref().unwrap_err();
        assert!(matches!(**error, Error::WriterFailed { .. }), "{error}");
        let opened = Checkpoint::open(store.clone(), 1);
        assert!(matches!(opened, Err(Error::Incomplete { .. })));
    }
}

#[test]
fn a_save_that_its_writers_gave_up_is_not_finished() {
    let model = Model::on("dp=2,tp=2", 1);
    let store = memory();
    give_up_on(2, "job", &model, &store);
    assert!(matches!(
        finish(store.as_ref(), 1),
        Err(Error::Incomplete { .. })
    ));
    let worlds = &launch("job", 4)[2..=2];
    let dying = dies_at_commit(&store);
    let results = model.launch(
        &dying,
        worlds,
        1,
        &SaveOptions::default(),
        &deadlines(500, 10),
    );
    results[0].as_ref().unwrap_err();
    let left = &unfinished(store.as_ref(), 1).unwrap()[0];
    assert!(left.missing.is_empty() && left.is_given_up && !left.is_complete());
    let error = finish(store.as_ref(), 1).unwrap_err();
    assert!(matches!(error, Error::Incomplete { .. }), "{error}");
}

#[test]
fn a_part_whose_data_is_gone_is_not_committed() {
    let model = Model::on("dp=2,tp=2", 1);
    let store = memory();
    let dying = dies_at_commit(&store);
    // As if the others had died, too.
    give_up_on(2, "job", &model, &store);
    let worlds = &launch("job", 4)[2..=2];
    let options = deadlines(500, 10);
    let results = model.launch(&dying, worlds, 1, &SaveOptions::default(), &options);
    results[0].as_ref().unwrap_err();
    let left = &unfinished(store.as_ref(), 1).unwrap()[0];
    store
        .delete(&format!("step-00000001/{}/FAILED", left.attempt))
        .unwrap();
    let attempt = &unfinished(store.as_ref(), 1).unwrap()[0];
    assert!(attempt.is_complete());
    let data = format!("step-00000001/{}/00002.safetensors", attempt.attempt);
    store.delete(&data).unwrap();
    let error = finish(store.as_ref(), 1).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert!(error.to_string().contains(&data), "{error}");
    assert!(store.head("step-00000001/COMMIT").unwrap().is_none());
}

#[test]
fn another_writer_takes_over_when_writer_0_dies_after_its_part() {
    let model = Model::on("dp=2,tp=2", 1);
    let store = memory();
    let worlds = World::threads(4);
    let dying = dies_at_commit(&store);
    let options = deadlines(20_000, 50);
    let save = SaveOptions::default();
    let (first, others) = thread::scope(|scope| {
        let first = scope.spawn(|| model.launch(&dying, &worlds[..1], 1, &save, &options));
        let others = model.launch(&store, &worlds[1..], 1, &save, &options);
        (first.join().unwrap(), others)
    });
    first[0].as_ref().unwrap_err();
    for result in others {
        result.unwrap();
    }
    model.assert_whole(&latest(&store));
}

#[test]
fn a_session_name_used_twice_is_refused_by_name_and_harms_nothing() {
    let (one, two) = (Model::on("tp=2", 1), Model::on("tp=2", 2));
    let store = memory();
    let worlds = launch("job-7", 2);
    let save = SaveOptions::default();
    for result in one.launch(&store, &worlds, 1, &save, &quick()) {
        result.unwrap();
    }
    // The first launch dies while it saves step 2, when writer 0 has its part in place.
    let options = deadlines(50, 10);
    two.launch(&store, &worlds[..1], 2, &save, &options);

    let second: Vec<Checkpointer> = worlds
        .iter()
        .map(|world| checkpointer(&store, world, &quick()))
        .collect();
    let mut refused = together(&second, |run, rank| one.save_from(run, rank, 2, &save));
    let rank_1 = refused.pop().unwrap().unwrap_err();
    assert!(
        matches!(*rank_1, Error::WriterFailed { writer: 0, .. }),
        "{rank_1}"
    );
    let rank_0 = refused.pop().unwrap().unwrap_err();
    assert!(
        matches!(*rank_0, Error::SessionReused { step: 2, .. }),
        "{rank_0}"
    );
    assert!(rank_0.to_string().contains("`job-7`"), "{rank_0}");
    assert!(rank_0.hint().unwrap().contains("session"));
    one.assert_whole(&latest(&store));

    for result in together(&second, |run, rank| two.save_from(run, rank, 2, &save)) {
        result.unwrap();
    }
    two.assert_whole(&latest(&store));
}

#[test]
fn ranks_that_saw_a_step_taken_at_different_moments_still_save_together() {
    let (old, new) = (Model::on("tp=2", 1), Model::on("tp=2", 2));
    let store = memory();
    let ranks: Vec<Checkpointer> = World::threads(2)
        .iter()
        .map(|world| checkpointer(&store, world, &quick()))
        .collect();
    // Rank 0 starts while the step is free; rank 1 comes when another launch has taken it.
    let early = new.start(&ranks[0], 0, 5, &SaveOptions::default()).unwrap();
    old.save_ok(&store, 5);
    let late = new.start(&ranks[1], 1, 5, &SaveOptions::default());
    assert!(matches!(late, Err(Error::StepTaken { .. })));
    assert!(matches!(
        *early.wait().unwrap_err(),
        Error::StepTaken { .. }
    ));
    for result in together(&ranks, |run, rank| new.save_from(run, rank, 5, &replace())) {
        result.unwrap();
    }
    new.assert_whole(&latest(&store));
}

#[test]
fn a_rank_that_cannot_look_for_the_step_fails_it_for_all_and_the_next_try_works() {
    let model = Model::on("tp=2", 1);
    let flaky = Arc::new(FlakyStore::new(memory()));
    let stores: [Arc<dyn Store>; 2] = [flaky.inner().clone(), flaky.clone()];
    flaky.add(Rule::new([Operation::Open], Fault::IO).on("COMMIT").nth(0));
    let worlds = World::threads(2);
    let ranks: Vec<Checkpointer> = (0..2)
        .map(|rank| checkpointer(&stores[rank], &worlds[rank], &quick()))
        .collect();
    let save = SaveOptions::default();
    let results = together(&ranks, |run, rank| model.save_from(run, rank, 1, &save));
    assert!(matches!(
        **results[0].as_ref().unwrap_err(),
        Error::WriterFailed { writer: 1, .. }
    ));
    assert!(matches!(
        **results[1].as_ref().unwrap_err(),
        Error::Store { .. }
    ));
    for result in together(&ranks, |run, rank| model.save_from(run, rank, 1, &save)) {
        result.unwrap();
    }
    model.assert_whole(&latest(&stores[0]));
}
