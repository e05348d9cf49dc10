//! Saves on a fast tier with a durable one behind it, in good times and bad.
//!
//! Whatever happens, what was reported durable loads from the durable tier alone, and what was reported local from the fast one.

mod crash;
mod damage;
mod delta;
mod nodes;

use crate::common::{Model, checkpointer, copy_of, latest, memory, quick, replace, together};
use cairn_checkpoint::retention::{self, Keep};
use cairn_checkpoint::tags::{tag, untag};
use cairn_checkpoint::{
    Checkpointer, Error, Level, LoadOptions, Options, SaveOptions, Strictness, Target, World,
};
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use cairn_store::{Memory, PutMode, Store, Tiered};
use std::sync::Arc;
use std::time::SystemTime;

pub(crate) const MESH: &str = "dp=2,tp=2";

/// Everything that changes a store.
pub(crate) const CHANGES: [Operation; 4] = [
    Operation::Put,
    Operation::Create,
    Operation::Write,
    Operation::Finish,
];

pub(crate) fn tiers(fast: &Arc<dyn Store>, durable: &Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Tiered::new(fast.clone(), durable.clone()))
}

/// The ranks of a new launch.
pub(crate) fn launch(store: &Arc<dyn Store>, size: usize, options: &Options) -> Vec<Checkpointer> {
    let worlds = World::threads(size);
    let ranks = worlds.iter();
    ranks
        .map(|world| checkpointer(store, world, options))
        .collect()
}

/// Saves a step on all ranks and waits until it is on the durable tier.
pub(crate) fn save(ranks: &[Checkpointer], step: u64) -> Model {
    let model = Model::on(MESH, step);
    save_model(ranks, &model, step);
    model
}

/// As [`save`], of a model of one's own.
pub(crate) fn save_model(ranks: &[Checkpointer], model: &Model, step: u64) {
    for saved in together(ranks, |run, rank| {
        model.save_from(run, rank, step, &SaveOptions::default())
    }) {
        assert!(saved.unwrap().uploaded.is_some());
    }
}

/// Fast tiers keep everything.
pub(crate) fn keep_all() -> Options {
    Options {
        keep_fast: None,
        ..quick()
    }
}

#[test]
fn a_save_is_staged_then_local_then_durable() {
    let (fast, durable) = (memory(), memory());
    let ranks = launch(&tiers(&fast, &durable), 4, &quick());
    let model = Model::on(MESH, 1);
    let saves = together(&ranks, |run, rank| {
        let saving = model.start(run, rank, 1, &SaveOptions::default()).unwrap();
        saving.wait_for(Level::Staged).unwrap();
        saving.wait_for(Level::Local).unwrap();
        model.assert_whole(&latest(&fast));
        assert!(saving.level() >= Some(Level::Local));
        saving
    });
    for saving in saves {
        let report = saving.wait().unwrap();
        assert!(report.uploaded.unwrap() >= report.committed);
        assert_eq!(saving.level(), Some(Level::Durable));
        assert!(saving.is_done());
    }
    model.assert_whole(&latest(&durable));
    let commit = "step-00000001/COMMIT";
    assert_eq!(fast.get(commit).unwrap(), durable.get(commit).unwrap());
}

#[test]
fn on_one_store_local_is_durable() {
    let store = memory();
    let run = Checkpointer::new(store.clone(), World::single());
    let model = Model::on("single", 1);
    let saving = model.start(&run, 0, 1, &SaveOptions::default()).unwrap();
    saving.wait_for(Level::Local).unwrap();
    assert_eq!(saving.level(), Some(Level::Durable));
    assert_eq!(saving.wait().unwrap().uploaded, None);
}

#[test]
fn assets_values_and_timelines_reach_the_durable_tier() {
    let (fast, durable) = (memory(), memory());
    let run = Checkpointer::new(tiers(&fast, &durable), World::single());
    let model = Model::on("single", 1);
    let options = SaveOptions {
        tags: vec!["best".into()],
        assets: [("a/config.json".to_string(), b"{}".to_vec())].into(),
        ..SaveOptions::default()
    };
    model.save_from(&run, 0, 1, &options).unwrap();
    let checkpoint = latest(&durable);
    assert_eq!(checkpoint.manifest().tags, ["best"]);
    assert_eq!(checkpoint.timelines().unwrap().ranks.len(), 1);
    model.assert_whole(&checkpoint);
}

#[test]
fn a_durable_tier_that_is_down_costs_no_local_step_and_is_told_once() {
    let fast = memory();
    let durable = Arc::new(FlakyStore::new(Memory::new()));
    let store = tiers(&fast, &(durable.clone() as Arc<dyn Store>));
    let run = checkpointer(&store, &World::single(), &keep_all());
    durable.add(Rule::new(CHANGES, Fault::TIMED_OUT));
    let models = [1, 2, 3].map(|step| Model::on("single", step));
    let save = |step: usize| models[step - 1].start(&run, 0, step as u64, &SaveOptions::default());

    let first = save(1).unwrap();
    first.join();
    assert_eq!(first.level(), Some(Level::Local));
    models[0].assert_whole(&latest(&fast));
    // Nobody has looked, so the next save tells, once.
    let told = save(2).unwrap_err();
    assert!(matches!(told, Error::NotUploaded { step: 1, .. }), "{told}");
    let second = save(2).unwrap();
    second.wait_for(Level::Local).unwrap();
    for failed in [&first, &second] {
        failed.wait().unwrap_err();
        assert_eq!(failed.level(), Some(Level::Local));
    }
    let third = save(3).unwrap();
    third.wait_for(Level::Local).unwrap();
    models[2].assert_whole(&latest(&fast));

    durable.clear();
    until(|| third.wait().is_ok());
    run.wait().unwrap();
    assert_eq!(first.level(), Some(Level::Durable));
    assert_eq!(second.level(), Some(Level::Durable));
    let alone = Checkpointer::new(durable as Arc<dyn Store>, World::single());
    for (step, model) in (1..).zip(&models) {
        model.assert_whole(&alone.open(step).unwrap());
    }
}

#[test]
fn what_is_on_the_fast_tier_only_is_uploaded_by_the_next_launch_of_any_size() {
    let fast = memory();
    let down = Arc::new(FlakyStore::new(Memory::new()));
    down.add(Rule::new(CHANGES, Fault::DENIED));
    let store = tiers(&fast, &(down as Arc<dyn Store>));
    for step in [1, 2] {
        let ranks = launch(&store, 4, &keep_all());
        let model = Model::on(MESH, step);
        together(&ranks, |run, rank| {
            let saving = model.start(run, rank, step, &SaveOptions::default());
            saving.unwrap().wait_for(Level::Local).unwrap();
        });
    }
    for size in [1, 3, 4] {
        let (fast, durable) = (copied(&fast), memory());
        let ranks = launch(&tiers(&fast, &durable), size, &keep_all());
        together(&ranks, |run, _| {
            run.resume_uploads().unwrap();
            run.wait().unwrap();
        });
        assert_eq!(ranks[0].steps().unwrap(), [1, 2]);
        let alone = Checkpointer::new(durable, World::single());
        for step in [1, 2] {
            Model::on(MESH, step).assert_whole(&alone.open(step).unwrap());
        }
    }
}

#[test]
fn a_step_that_is_committed_is_uploaded_whoever_said_that_it_failed() {
    let (fast, durable) = (memory(), memory());
    let model = Model::on(MESH, 1);
    model.save_ok(&fast, 1);
    let part = { fast.list("step-00000001").unwrap().into_iter() }
        .find(|meta| meta.key.ends_with(".part"))
        .unwrap();
    // One rank could not tell whether it was committed, and another saw that it was.
    let failed = format!("{}/FAILED", part.key.rsplit_once('/').unwrap().0);
    let note = br#"{"writer":1,"message":"an answer that was lost"}"#;
    fast.put(&failed, note, PutMode::Create).unwrap();
    for run in &launch(&tiers(&fast, &durable), 1, &quick()) {
        run.resume_uploads().unwrap();
        run.wait_uploads().unwrap();
    }
    model.assert_whole(&latest(&durable));
}

#[test]
fn a_tag_of_a_step_that_only_the_fast_tier_still_has_is_refused() {
    let (fast, durable) = (memory(), memory());
    let run = tiers(&fast, &durable);
    save(&launch(&run, 4, &keep_all()), 1);
    tag(&run, 1, "x").unwrap();
    untag(&run, 1, "x").unwrap();
    for meta in durable.list("step-00000001").unwrap() {
        durable.delete(&meta.key).unwrap();
    }
    assert!(matches!(tag(&run, 1, "x"), Err(Error::Deleted { .. })));
    // What is yet to be uploaded takes its tag along.
    Model::on(MESH, 2).save_ok(&fast, 2);
    tag(&run, 2, "x").unwrap();
    durable.delete("step-00000002/x.tag").unwrap();
    let ranks = launch(&run, 1, &keep_all());
    ranks[0].resume_uploads().unwrap();
    ranks[0].wait_uploads().unwrap();
    assert!(durable.head("step-00000002/x.tag").unwrap().is_some());
}

#[test]
fn a_reader_uploads_nothing() {
    let (fast, durable) = (memory(), memory());
    Model::on(MESH, 1).save_ok(&fast, 1);
    let run = Checkpointer::new(tiers(&fast, &durable), World::single());
    Model::on(MESH, 1).assert_whole(&run.latest().unwrap().checkpoint);
    run.wait().unwrap();
    drop(run);
    assert!(durable.list("").unwrap().is_empty());
}

#[test]
fn the_fast_tier_keeps_the_newest_and_what_is_not_durable() {
    let fast = memory();
    let durable = Arc::new(FlakyStore::new(Memory::new()));
    let store = tiers(&fast, &(durable.clone() as Arc<dyn Store>));
    let options = Options {
        keep_fast: Some(2),
        ..quick()
    };
    let ranks = launch(&store, 4, &options);
    for step in 1..=4 {
        save(&ranks, step);
    }
    ranks.iter().for_each(|run| run.wait().unwrap());
    drop(ranks);
    let on = |store: &Arc<dyn Store>| {
        let steps = Checkpointer::new(store.clone(), World::single()).steps();
        steps.unwrap()
    };
    assert_eq!(on(&fast), [3, 4]);
    assert_eq!(on(&(durable.clone() as Arc<dyn Store>)), [1, 2, 3, 4]);
    assert_eq!(on(&store), [1, 2, 3, 4]);

    // Without the durable tier nothing goes, whoever prunes.
    durable.add(Rule::new(CHANGES, Fault::IO));
    for step in 5..=7 {
        let run = checkpointer(&store, &World::single(), &options);
        let model = Model::on("single", step);
        let saving = model.start(&run, 0, step, &SaveOptions::default()).unwrap();
        saving.wait_for(Level::Local).unwrap();
    }
    assert_eq!(on(&fast), [3, 4, 5, 6, 7]);
    let keep = Keep {
        last: 1,
        ..Keep::default()
    };
    let plan = retention::plan(&fast, &keep, None, SystemTime::now()).unwrap();
    assert!(plan.remove.keys().eq(&[3, 4]), "{plan:?}");
    assert_eq!(plan.keep[&5], "not durable yet");
    retention::prune(fast.as_ref(), &plan).unwrap();
    assert_eq!(on(&fast), [5, 6, 7]);
}

#[test]
fn steps_that_were_pruned_from_the_durable_tier_are_not_uploaded_again() {
    let (fast, durable) = (memory(), memory());
    let store = tiers(&fast, &durable);
    let ranks = launch(&store, 4, &keep_all());
    for step in 1..=3 {
        save(&ranks, step);
    }
    let keep = Keep {
        last: 1,
        ..Keep::default()
    };
    let plan = retention::plan(&store, &keep, None, SystemTime::now()).unwrap();
    assert!(plan.remove.keys().eq(&[1, 2]), "{plan:?}");
    retention::prune(store.as_ref(), &plan).unwrap();
    drop(ranks);
    let run = checkpointer(&store, &World::single(), &keep_all());
    run.resume_uploads().unwrap();
    run.wait().unwrap();
    let alone = Checkpointer::new(durable, World::single());
    assert_eq!(alone.steps().unwrap(), [3]);
    assert_eq!(run.steps().unwrap(), [1, 2, 3]);
}

#[test]
fn a_durable_tier_elsewhere_gets_everything() {
    let (fast, first) = (memory(), memory());
    let ranks = launch(&tiers(&fast, &first), 4, &keep_all());
    let model = save(&ranks, 1);
    drop(ranks);
    let folder = tempfile::tempdir().unwrap();
    let second: Arc<dyn Store> = Arc::new(cairn_store::Local::new(folder.path()));
    let run = checkpointer(&tiers(&fast, &second), &World::single(), &keep_all());
    run.resume_uploads().unwrap();
    run.wait().unwrap();
    model.assert_whole(&latest(&second));
}

#[test]
fn a_step_that_either_tier_has_is_refused_or_replaced_on_both() {
    let (fast, durable) = (memory(), memory());
    Model::on("single", 1).save_ok(&durable, 1);
    let run = Checkpointer::new(tiers(&fast, &durable), World::single());
    let other = Model::on("single", 2);
    let refused = other.start(&run, 0, 1, &SaveOptions::default());
    assert!(matches!(refused, Err(Error::StepTaken { step: 1, .. })));
    other.save_from(&run, 0, 1, &replace()).unwrap();
    other.assert_whole(&latest(&durable));
    other.assert_whole(&run.open(1).unwrap());
}

#[test]
fn an_older_attempt_that_was_left_behind_does_not_replace_a_younger_one() {
    let (fast, durable) = (memory(), memory());
    let (old, young) = (Model::on("single", 1), Model::on("single", 2));
    old.save_ok(&fast, 7);
    wait_for_the_next_second();
    young.save_ok(&durable, 7);
    let store = tiers(&fast, &durable);
    let run = Checkpointer::new(store.clone(), World::single());
    young.assert_whole(&run.open(7).unwrap());
    run.resume_uploads().unwrap();
    run.wait().unwrap();
    young.assert_whole(&latest(&durable));

    // The other way round, a step that was replaced before its upload replaces the old one there.
    let (fast, durable) = (durable, fast);
    let run = Checkpointer::new(tiers(&fast, &durable), World::single());
    run.resume_uploads().unwrap();
    run.wait().unwrap();
    young.assert_whole(&latest(&durable));
}

#[test]
fn a_full_fast_disk_fails_the_save_and_harms_no_tier() {
    let fast = Arc::new(FlakyStore::new(Memory::new()));
    let durable = memory();
    let store = tiers(&(fast.clone() as Arc<dyn Store>), &durable);
    let run = checkpointer(&store, &World::single(), &quick());
    let (first, second) = (Model::on("single", 1), Model::on("single", 2));
    first
        .save_from(&run, 0, 1, &SaveOptions::default())
        .unwrap();
    fast.add(Rule::new([Operation::Create], Fault::NO_SPACE));
    let failed = second.save_from(&run, 0, 2, &SaveOptions::default());
    assert!(failed.is_err());
    fast.clear();
    first.assert_whole(&run.latest().unwrap().checkpoint);
    first.assert_whole(&latest(&durable));
    second
        .save_from(&run, 0, 3, &SaveOptions::default())
        .unwrap();
    second.assert_whole(&latest(&durable));
}

#[test]
fn a_run_on_an_unreachable_durable_tier_goes_on_from_the_fast_one() {
    let fast = memory();
    let durable = Arc::new(FlakyStore::new(Memory::new()));
    let store = tiers(&fast, &(durable.clone() as Arc<dyn Store>));
    let model = save(&launch(&store, 4, &quick()), 1);
    let all = [
        Operation::Open,
        Operation::Read,
        Operation::Head,
        Operation::List,
    ];
    durable.add(Rule::new(all, Fault::TIMED_OUT));
    let run = Checkpointer::new(store, World::single());
    assert_eq!(run.steps().unwrap(), [1]);
    model.assert_loads(&run.latest().unwrap().checkpoint);
    let empty = Checkpointer::new(
        tiers(&memory(), &(durable as Arc<dyn Store>)),
        World::single(),
    );
    assert!(empty.latest().is_err());
}

#[test]
fn two_runs_on_one_fast_disk_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let at = |tier: &str| folder.path().join(tier).join(name).display().to_string();
        cairn_store::open(&format!("tiers:{},{}", at("fast"), at("durable"))).unwrap()
    };
    let (a, b) = (run("a"), run("b"));
    let (of_a, of_b) = (Model::on(MESH, 1), Model::on(MESH, 2));
    std::thread::scope(|scope| {
        scope.spawn(|| of_a.save_ok(&a, 1));
        scope.spawn(|| of_b.save_ok(&b, 1));
    });
    of_a.assert_whole(&latest(a.tiers().unwrap().durable()));
    of_b.assert_whole(&latest(b.tiers().unwrap().durable()));
}

#[test]
fn without_the_fast_tier_a_slice_is_read_from_the_durable_one() {
    let (fast, durable) = (memory(), memory());
    let model = save(&launch(&tiers(&fast, &durable), 4, &quick()), 1);
    let (mut bytes, spec) = (vec![0; 16 * 4], &model.specs["layers.0.norm"]);
    let target = Target::new("layers.0.norm", spec, 0, &mut bytes).unwrap();
    let gone = tiers(&memory(), &durable);
    let run = Checkpointer::new(gone, World::single());
    let checkpoint = run.latest().unwrap().checkpoint;
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    let report = checkpoint.load(vec![target], &options).unwrap();
    assert!(report.mended.is_empty());
    assert_eq!(bytes, model.whole["layers.0.norm"]);
}

pub(crate) fn copied(store: &Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(copy_of(store.as_ref()))
}

/// Looks again and again.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Attempts are told apart by the second in which they were made.
fn wait_for_the_next_second() {
    let now = || cairn_checkpoint::rfc3339(SystemTime::now());
    let before = now();
    while now() == before {
        std::thread::yield_now();
    }
}
