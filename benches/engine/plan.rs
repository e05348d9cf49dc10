//! The cost of planning and of metadata at a scale no test machine has.

use crate::measure::{ROUNDS, median, timed, value};
use cairn::checkpoint::{
    Checkpointer, Layout, Manifest, PlannedWriter, SaveOptions, State, World, testing,
};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::store::Memory;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tensors of a state that is saved again and again.
const REPEATED: usize = 10_000;

/// One rank's own plan and the manifest, for 1,024 ranks with 1,000 tensors and 16,384 ranks with 2,000.
pub(crate) fn measure() {
    for (dp, pp, tp, tensors, limit_ms) in [(16, 8, 8, 1000, 20.0), (64, 16, 16, 2000, 200.0)] {
        let ranks = dp * pp * tp;
        let layout = layout(dp, pp, tp, tensors);
        let plans = (0..ROUNDS).map(|_| timed(|| plan(&layout, ranks / 2 + 3, ranks)).0);
        let what = format!("save plan of one rank, {ranks} ranks × {tensors} tensors");
        value(&what, "ms", 1e3 * median(plans.collect()), limit_ms);
        let bytes = testing::sample_manifest(&layout, ranks);
        let what = format!("manifest, {ranks} ranks × {tensors} tensors");
        value(&what, "MB", bytes.len() as f64 / 1e6, 1.0);
        let opens = (0..ROUNDS).map(|_| timed(|| open(&bytes)).0);
        value(
            &format!("open the {what}"),
            "ms",
            1e3 * median(opens.collect()),
            50.0,
        );
    }
    repeated();
}

/// The time from new memory to the plan of a save whose tensors are those of the save before.
fn repeated() {
    let mesh = Mesh::new([("dp", 1)]).expect("a mesh");
    let spec = TensorSpec::parse(&mesh, "f32[4@dp, 8]").expect("a spec");
    let memory = vec![0; 128 * REPEATED];
    let mut state = State::new(0);
    for (index, bytes) in memory.chunks(128).enumerate() {
        let name = format!("model.layers.{}.weight.{}", index / 9, index % 9);
        state.tensor(&name, &spec, bytes).expect("a tensor");
    }
    let run = Checkpointer::new(Arc::new(Memory::new()), World::single());
    let save = |step, state: &State| {
        let saving = run.save(step, state, &SaveOptions::default());
        let report = saving.expect("captured").wait().expect("committed");
        report.planning.as_secs_f64()
    };
    let outline = state.outline();
    save(0, &state);
    let plans = (1..=ROUNDS).map(|step| {
        let (seconds, state) = timed(|| outline.state(memory.chunks(128)).expect("its memory"));
        seconds + save(step as u64, &state)
    });
    let median = 1e3 * median(plans.collect());
    value("plan of a repeated save, 10,000 tensors", "ms", median, 5.0);
}

fn plan(layout: &Layout, rank: usize, ranks: usize) -> PlannedWriter {
    PlannedWriter::new(layout, rank, ranks).expect("a valid layout")
}

fn open(bytes: &[u8]) -> Manifest {
    Manifest::decode("COMMIT", bytes).expect("a valid manifest")
}

/// Weights split over `tp` and replicated over `dp`, optimizer state cut flat over `dp`; every rank knows all tensors.
fn layout(dp: usize, pp: usize, tp: usize, tensors: usize) -> Layout {
    let mesh = Mesh::new([("dp", dp), ("pp", pp), ("tp", tp)]).expect("a mesh");
    let spec = |index: usize| {
        let text = match index % 4 {
            0 => "bf16[8192@tp, 8192]",
            1 => "f32[8192@tp, 8192 | flat(dp)]",
            2 => "f32[8192, 8192@tp | flat(dp)]",
            _ => "f32[8192]",
        };
        TensorSpec::parse(&mesh, text).expect("a spec")
    };
    let name = |index: usize| format!("model.layers.{}.weight.{}", index / 4, index % 4);
    let tensors: BTreeMap<_, _> = (0..tensors)
        .map(|index| (name(index), spec(index)))
        .collect();
    Layout::new(tensors, BTreeMap::new())
}
