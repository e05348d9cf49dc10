//! Nodes that have a fast tier each: a rank finds there only what its own node wrote.

use super::{MESH, keep_all, save};
use crate::common::{Model, checkpointer, deadlines, latest, memory, quick, together};
use cairn_checkpoint::{Checkpointer, Error, Level, Options, SaveOptions, World};
use cairn_store::{Store, Tiered};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ranks of a new launch, two on each node.
fn launch(
    nodes: &[Arc<dyn Store>],
    durable: &Arc<dyn Store>,
    options: &Options,
) -> Vec<Checkpointer> {
    let worlds = World::threads(nodes.len() * 2);
    let ranks = worlds.iter().map(|world| {
        let fast = nodes[world.rank() / 2].clone();
        let store: Arc<dyn Store> = Arc::new(Tiered::per_node(fast, durable.clone()));
        checkpointer(&store, world, options)
    });
    ranks.collect()
}

#[test]
fn a_step_is_durable_when_all_nodes_have_uploaded_their_files() {
    let (nodes, durable) = ([memory(), memory()], memory());
    let ranks = launch(&nodes, &durable, &quick());
    let model = save(&ranks, 1);
    model.assert_whole(&latest(&durable));
    for (node, writers) in nodes.iter().zip([[0, 1], [2, 3]]) {
        let listing = node.list("step-00000001").unwrap();
        let has = |writer| {
            listing
                .iter()
                .any(|meta| meta.key.ends_with(&format!("{writer:05}.part")))
        };
        assert!(writers.into_iter().all(has));
        assert_eq!(
            listing
                .iter()
                .filter(|meta| meta.key.ends_with(".part"))
                .count(),
            2
        );
    }
    for run in &ranks {
        model.assert_whole(&run.latest().unwrap().checkpoint);
    }
    // Of a node that was lost nothing is needed.
    let others = launch(&[memory(), nodes[1].clone()], &durable, &quick());
    model.assert_whole(&others[0].latest().unwrap().checkpoint);
}

#[test]
fn a_run_that_goes_back_loses_nothing_that_is_yet_to_be_uploaded() {
    let (nodes, durable) = ([memory(), memory()], memory());
    let keep_one = Options {
        keep_fast: Some(1),
        ..quick()
    };
    let ranks = launch(&nodes, &durable, &keep_one);
    save(&ranks, 5);
    save(&ranks, 6);
    // Step 2 is not durable yet when another step becomes so.
    let model = save(&ranks, 2);
    model.assert_whole(&cairn_checkpoint::Checkpoint::open(durable, 2).unwrap());
}

#[test]
fn nodes_that_are_started_again_bring_to_its_end_what_all_of_them_have() {
    let nodes = [memory(), memory()];
    let (one, two) = (Model::on(MESH, 1), Model::on(MESH, 2));
    // Nothing reaches the durable tier of the first launch; of the second step, one writer never wrote.
    let ranks = launch(&nodes, &down(), &given_up_soon());
    together(&ranks, |run, rank| {
        let saving = one.start(run, rank, 1, &SaveOptions::default()).unwrap();
        saving.wait_for(Level::Local).unwrap();
        assert_eq!(saving.level(), Some(Level::Local));
    });
    drop(ranks);
    let ranks = launch(&nodes, &down(), &given_up_soon());
    together(&ranks[..3], |run, rank| {
        let saving = two.start(run, rank, 2, &SaveOptions::default()).unwrap();
        saving.wait_for(Level::Local).unwrap();
    });
    drop(ranks);
    let durable = memory();
    let ranks = launch(&nodes, &durable, &quick());
    together(&ranks, |run, _| {
        run.resume_uploads().unwrap();
        run.wait().unwrap();
    });
    one.assert_whole(&latest(&durable));
    // Training goes on, and what can never be whole leaves the fast tiers.
    let options = Options {
        keep_fast: Some(1),
        ..quick()
    };
    drop(ranks);
    let ranks = launch(&nodes, &durable, &options);
    let three = save(&ranks, 3);
    drop(ranks);
    three.assert_whole(&latest(&durable));
    for node in &nodes {
        assert_eq!(node.list_folders("").unwrap(), ["step-00000003"]);
    }
}

#[test]
fn a_writer_that_fails_is_heard_on_other_nodes() {
    let (nodes, durable) = ([memory(), memory()], memory());
    let ranks = launch(&nodes, &durable, &keep_all());
    let model = Model::on(MESH, 1);
    let outcomes = together(&ranks, |run, rank| {
        if rank == 3 {
            run.give_up(1, "it has no mind to");
            return None;
        }
        let saved = model.save_from(run, rank, 1, &SaveOptions::default());
        Some(saved.unwrap_err())
    });
    for error in outcomes.into_iter().flatten() {
        assert!(
            matches!(*error, Error::WriterFailed { writer: 3, .. }),
            "{error}"
        );
    }
    assert!(durable.head("step-00000001/COMMIT").unwrap().is_none());
}

/// A durable tier that takes nothing.
fn down() -> Arc<dyn Store> {
    use cairn_store::testing::{Fault, FlakyStore, Rule};
    let store = FlakyStore::new(cairn_store::Memory::new());
    store.add(Rule::new(super::CHANGES, Fault::TIMED_OUT));
    Arc::new(store)
}

fn given_up_soon() -> Options {
    Options {
        upload_timeout: std::time::Duration::from_millis(50),
        ..keep_all()
    }
}

/// Two ranks, of which the second uploads to nowhere, as if it had died when its files were on its fast tier.
fn launch_with_one_dead(
    fast: [&Arc<dyn Store>; 2],
    durable: &Arc<dyn Store>,
    tiers: fn(Arc<dyn Store>, Arc<dyn Store>) -> Tiered,
    options: &Options,
) -> Vec<Checkpointer> {
    let worlds = World::threads(2);
    let ranks = worlds.iter().map(|world| {
        let rank = world.rank();
        let durable = [durable.clone(), memory()][rank].clone();
        let store: Arc<dyn Store> = Arc::new(tiers(fast[rank].clone(), durable));
        checkpointer(&store, world, options)
    });
    ranks.collect()
}

#[test]
fn files_of_a_rank_that_died_before_its_upload_are_uploaded_by_others_that_have_them() {
    let (fast, durable) = (memory(), memory());
    let options = Options {
        keep_fast: None,
        ..deadlines(500, 100)
    };
    let ranks = launch_with_one_dead([&fast, &fast], &durable, Tiered::new, &options);
    let model = Model::on("dp=2", 1);
    let saves = together(&ranks, |run, rank| {
        model.start(run, rank, 1, &SaveOptions::default()).unwrap()
    });
    assert!(saves[0].wait().unwrap().uploaded.is_some());
    model.assert_whole(&latest(&durable));
}

#[test]
fn who_waits_for_the_upload_of_a_rank_that_died_learns_which_and_can_go() {
    let (nodes, durable) = ([memory(), memory()], memory());
    let options = deadlines(500, 100);
    let [one, two] = [&nodes[0], &nodes[1]];
    let mut ranks = launch_with_one_dead([one, two], &durable, Tiered::per_node, &options);
    let model = Model::on("dp=2", 1);
    let saves = together(&ranks, |run, rank| {
        model.start(run, rank, 1, &SaveOptions::default()).unwrap()
    });
    let begun = Instant::now();
    let error = saves[0].wait().unwrap_err();
    let Error::NotUploaded { step: 1, source } = error.as_ref() else {
        panic!("{error}");
    };
    assert!(
        matches!(source.as_ref(), Error::WritersMissing { missing, .. } if missing == &[1]),
        "{source}"
    );
    // The other one may only be slow: its files are uploaded by itself, and training goes on.
    let second = model.start(&ranks[0], 0, 2, &SaveOptions::default());
    second.unwrap().wait_for(Level::Local).unwrap();
    drop(saves);
    drop(ranks.remove(0));
    assert!(begun.elapsed() < Duration::from_secs(20));
}
