//! Saves the state of four ranks, loads it on three, in a folder of your choice: `cargo run --example quickstart -- FOLDER`.

#![expect(clippy::print_stdout, reason = "a program")]

use cairn::checkpoint::{Checkpointer, LoadOptions, SaveOptions, State, Target, World};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::store::{self, Store};
use std::sync::Arc;
use std::thread;

type Anything = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Anything> {
    let folder = std::env::args().nth(1).ok_or("name a folder for the run")?;
    let store = store::open(&folder)?;
    let spec = TensorSpec::parse(&Mesh::new([("tp", 4)])?, "f32[10@tp, 1000]")?;

    // Four ranks, here as threads. They share the store and nothing else.
    let saved: Result<Vec<()>, Anything> = thread::scope(|scope| {
        let save = |world| scope.spawn(|| save(store.clone(), world, &spec));
        let ranks: Vec<_> = World::threads(4).into_iter().map(save).collect();
        let joined = ranks
            .into_iter()
            .map(|rank| rank.join().expect("no rank panics"));
        joined.collect()
    });
    saved?;

    // Another day, three ranks: 4, 4 and 2 rows. All of them are loaded together, so each byte is read once.
    let spec = TensorSpec::parse(&Mesh::new([("tp", 3)])?, "f32[10@tp, 1000]")?;
    let mut memory = [vec![0; 16_000], vec![0; 16_000], vec![0; 8000]];
    let targets = memory.iter_mut().enumerate();
    let targets = targets.map(|(rank, bytes)| Target::new("weights", &spec, rank, bytes));
    let latest = Checkpointer::new(store, World::single()).latest()?;
    let report = latest
        .checkpoint
        .load(targets.collect::<Result<_, _>>()?, &LoadOptions::default())?;

    println!(
        "step {} loaded on three ranks: {} bytes read from {} files",
        latest.checkpoint.step(),
        report.cost.read_bytes,
        report.cost.files
    );
    println!("look at it: cairn inspect {folder} --map weights");
    Ok(())
}

/// What each rank does: describe its part, save, and wait until the step is committed.
fn save(store: Arc<dyn Store>, world: World, spec: &TensorSpec) -> Result<(), Anything> {
    let rank = world.rank();
    let rows = spec.local_shape(rank).ok_or("every rank holds a part")?[0];
    let weights = vec![1; rows * 1000 * 4];
    let mut state = State::new(rank);
    state.tensor("weights", spec, &weights)?;
    let run = Checkpointer::new(store, world);
    let step = run.steps()?.last().map_or(1, |last| last + 1);
    run.save(step, &state, &SaveOptions::default())?.wait()?;
    Ok(())
}
