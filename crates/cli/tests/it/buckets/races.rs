//! Many who commit one step at the same moment.

use super::store;
use cairn::checkpoint::{Checkpointer, Options, SaveOptions, State, World};
use cairn::sharding::TensorSpec;
use cairn::store::Store;
use cairn_store::testing::BucketServer;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Sixteen save step 7 at the same moment, each with a store of its own; what each is told.
fn race(
    open_store: impl Fn() -> Arc<dyn Store> + Sync,
    worlds: Vec<World>,
) -> Vec<Result<(), String>> {
    let save = |number: usize, world: World| {
        let spec = TensorSpec::parse(&format!("dp={}", world.size()).parse()?, "f32[16@dp]")?;
        let bytes = vec![0; 64 / world.size()];
        let mut state = State::new(world.rank());
        state.tensor("w", &spec, &bytes)?;
        // The same for all ranks of a launch.
        state.value("launch", Value::from(number - world.rank()));
        let options = Options {
            takeover: Duration::ZERO,
            ..Options::default()
        };
        let run = Checkpointer::with_options(open_store(), world, options);
        run.save(7, &state, &SaveOptions::default())?.wait()?;
        Ok::<(), Box<dyn std::error::Error>>(())
    };
    std::thread::scope(|scope| {
        let start = |(number, world)| {
            let save = &save;
            scope.spawn(move || save(number, world).map_err(|error| error.to_string()))
        };
        let threads: Vec<_> = worlds.into_iter().enumerate().map(start).collect();
        let told = threads.into_iter().map(|thread| thread.join().unwrap());
        told.collect()
    })
}

/// Sixteen launches save one step: one is told that it did, and that is what is found. Where the store lets several win, sixteen writers of one launch do.
fn check_race(open_store: impl Fn() -> Arc<dyn Store> + Sync) {
    let is_strong = open_store().has_one_winner().unwrap();
    let worlds = match is_strong {
        true => (0..16).map(|_| World::single()).collect(),
        false => World::threads(16),
    };
    let told = race(&open_store, worlds);
    let run = Checkpointer::new(open_store(), World::single());
    assert_eq!(run.steps().unwrap(), [7]);
    let found = run.latest().unwrap().checkpoint;
    let won: Vec<usize> = (0..16).filter(|number| told[*number].is_ok()).collect();
    if !is_strong {
        assert_eq!(won.len(), 16, "{told:?}");
        return;
    }
    let [winner] = won[..] else {
        panic!("{} winners: {told:?}", won.len());
    };
    assert_eq!(found.values()["launch"], winner);
    let taken = |told: &&Result<(), String>| {
        let error = told.as_ref().err();
        error.is_some_and(|error| error.contains("is already committed"))
    };
    assert_eq!(told.iter().filter(taken).count(), 15, "{told:?}");
}

/// On the server of this process, on one that ignores conditions, and on the one that `cargo xtask conformance` names.
#[test]
fn of_sixteen_racing_committers_one_wins() {
    let server = BucketServer::start();
    check_race(|| store(&server, "strong"));
    server.ignore_conditions();
    check_race(|| store(&server, "weak"));
    if let Ok(url) = std::env::var("CAIRN_TEST_BUCKET") {
        let url = format!("{url}/race-{}", std::process::id());
        check_race(|| cairn::store::open(&url).unwrap());
    }
}
