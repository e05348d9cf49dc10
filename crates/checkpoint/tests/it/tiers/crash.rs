//! Processes that die at the n-th operation of an upload, for every n and every way to die.

use super::{keep_all, launch, save_model, tiers};
use crate::common::{Model, checkpointer, copy_of, latest, memory, together};
use cairn_checkpoint::{Checkpointer, Error, Level, Options, SaveOptions, Saving, World};
use cairn_store::testing::{CrashPlan, CrashStore};
use cairn_store::{Memory, Store};
use std::sync::Arc;
use std::time::Duration;

/// Two ranks are enough to miss one.
const MESH: &str = "tp=2";

fn save(ranks: &[Checkpointer], step: u64) -> Model {
    let model = Model::on(MESH, step);
    save_model(ranks, &model, step);
    model
}

/// Which tier of the machine dies, with the process that writes to both.
#[derive(Clone, Copy, PartialEq)]
enum Dies {
    Fast,
    Durable,
}

/// Ranks that save step 2, on stores that may die; who uploads waits so long for the others.
fn save_until_dead(store: &Arc<dyn Store>, upload_timeout: Duration) -> Vec<Result<Saving, Error>> {
    let options = Options {
        upload_timeout,
        ..keep_all()
    };
    let ranks = launch(store, 2, &options);
    let model = Model::on(MESH, 2);
    together(&ranks, |run, rank| {
        let saving = model.start(run, rank, 2, &SaveOptions::default())?;
        saving.join();
        Ok(saving)
    })
}

fn as_store(store: &Memory) -> Arc<dyn Store> {
    Arc::new(store.clone())
}

/// Tiers of which one dies as planned, or only counts.
fn mortal(
    dies: Dies,
    fast: &Memory,
    durable: &Memory,
    plan: Option<CrashPlan>,
) -> (Arc<CrashStore<Memory>>, Arc<dyn Store>) {
    let disk = match dies {
        Dies::Fast => fast.clone(),
        Dies::Durable => durable.clone(),
    };
    let mortal = Arc::new(match plan {
        Some(plan) => CrashStore::new(disk, plan),
        None => CrashStore::counting(disk),
    });
    let as_mortal: Arc<dyn Store> = mortal.clone();
    let store = match dies {
        Dies::Fast => tiers(&as_mortal, &as_store(durable)),
        Dies::Durable => tiers(&as_store(fast), &as_mortal),
    };
    (mortal, store)
}

/// Step 1 is durable; then a tier dies at every operation of the next save.
fn try_every_crash(dies: Dies) {
    let (fast, durable) = (Memory::new(), Memory::new());
    let store = tiers(&as_store(&fast), &as_store(&durable));
    drop(save(&launch(&store, 2, &keep_all()), 1));
    let (counting, store) = mortal(dies, &copy_of(&fast), &copy_of(&durable), None);
    save_until_dead(&store, Duration::from_secs(20));
    for plan in CrashPlan::all(counting.operations() + 1) {
        let (fast, durable) = (copy_of(&fast), copy_of(&durable));
        let (_, store) = mortal(dies, &fast, &durable, Some(plan));
        // Those that live should not wait long for the dead.
        let saves = save_until_dead(&store, Duration::from_millis(20));
        check(&as_store(&fast), &as_store(&durable), &saves, plan);
    }
}

/// What was reported is there, and the next launch brings the rest to its end.
fn check(
    fast: &Arc<dyn Store>,
    durable: &Arc<dyn Store>,
    saves: &[Result<Saving, Error>],
    plan: CrashPlan,
) {
    let reached = saves.iter().flatten().filter_map(Saving::level).max();
    let newest = |store: &Arc<dyn Store>, reported: bool| {
        let checkpoint = latest(store);
        assert!(checkpoint.step() == 2 || !reported, "{plan:?}");
        Model::on(MESH, checkpoint.step()).assert_whole(&checkpoint);
        checkpoint.step()
    };
    newest(durable, reached >= Some(Level::Durable));
    let local = newest(fast, reached >= Some(Level::Local));
    let run = checkpointer(&tiers(fast, durable), &World::single(), &keep_all());
    run.resume_uploads().unwrap();
    run.wait().unwrap();
    assert_eq!(newest(durable, false), local, "{plan:?}");
}

#[test]
fn a_durable_tier_that_dies_at_any_operation_has_the_step_whole_or_not_at_all() {
    try_every_crash(Dies::Durable);
}

#[test]
fn a_fast_tier_that_dies_at_any_operation_has_the_step_whole_or_not_at_all() {
    try_every_crash(Dies::Fast);
}

/// An upload that a later launch takes up again, and that dies again, any number of times.
#[test]
fn a_launch_that_dies_while_it_takes_up_uploads_is_followed_by_one_that_ends_them() {
    let (fast, durable) = (Memory::new(), Memory::new());
    Model::on(MESH, 1).save_ok(&as_store(&fast), 1);
    let mut deaths = 0;
    loop {
        let plan = CrashPlan::all(1).nth(deaths % 9).map(|plan| CrashPlan {
            at: 1 + deaths as u64 / 9,
            ..plan
        });
        let dying = Arc::new(CrashStore::new(durable.clone(), plan.unwrap()));
        let store = tiers(&as_store(&fast), &(dying.clone() as Arc<dyn Store>));
        let run = checkpointer(&store, &World::single(), &keep_all());
        run.resume_uploads().unwrap();
        let outcome = run.wait();
        drop(run);
        if !dying.has_crashed() {
            outcome.unwrap();
            break;
        }
        deaths += 1;
        assert!(deaths < 200, "it never ends");
    }
    assert!(deaths > 3);
    Model::on(MESH, 1).assert_whole(&latest(&as_store(&durable)));
}

#[test]
fn a_launch_after_the_loss_of_the_fast_tier_needs_the_durable_one_only() {
    let durable = memory();
    let model = save(&launch(&tiers(&memory(), &durable), 2, &keep_all()), 1);
    let ranks = launch(&tiers(&memory(), &durable), 2, &keep_all());
    model.assert_whole(&ranks[0].latest().unwrap().checkpoint);
    let next = save(&ranks, 2);
    next.assert_whole(&latest(&durable));
    let run = Checkpointer::new(durable, World::single());
    assert_eq!(run.steps().unwrap(), [1, 2]);
}
