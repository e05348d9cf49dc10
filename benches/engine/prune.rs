//! What a pruning after each save costs, in a run of many tensors that keeps many steps.

use crate::Job;
use crate::files;
use crate::load::memory_field;
use crate::measure::{ROUNDS, median, timed, value};
use cairn::checkpoint::retention::Keep;
use cairn::checkpoint::{Checkpointer, SaveOptions, State, World};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::store::Local;
use std::sync::Arc;
use std::time::SystemTime;

const TENSORS: usize = 10_000;
const KEPT: usize = 40;
/// The bytes of each tensor: a save of all of them is small, so that what is fixed about a pruning shows.
const TENSOR_BYTES: usize = 128;

/// Saves, and prunes behind each save.
pub(crate) fn measure(job: &Job) {
    let folder = job.directory.join("pruned");
    let store = Arc::new(Local::new(&folder));
    let run = Checkpointer::new(store, World::single());
    let mesh = Mesh::new([("dp", 1)]).expect("a mesh");
    let spec = TensorSpec::parse(&mesh, "f32[4@dp, 8]").expect("a spec");
    let memory = vec![0; TENSOR_BYTES * TENSORS];
    let mut state = State::new(0);
    for (index, bytes) in memory.chunks(TENSOR_BYTES).enumerate() {
        let name = format!("model.layers.{}.weight.{}", index / 9, index % 9);
        state.tensor(&name, &spec, bytes).expect("a tensor");
    }
    let save = |step: usize| {
        let saving = run.save(step as u64, &state, &SaveOptions::default());
        saving.expect("captured").wait().expect("committed");
    };
    let keep = Keep {
        last: KEPT,
        ..Keep::default()
    };
    let prune = || {
        let plan = run.pruner().plan(&keep, None, SystemTime::now());
        let plan = plan.expect("a plan");
        run.pruner().prune(&plan).expect("pruned");
    };
    (0..KEPT).for_each(save);
    let what = format!("{TENSORS} tensors × {KEPT} steps");
    // The first of a program reads the whole run.
    reset_peak();
    let before = memory_field("VmRSS");
    let (first, ()) = timed(prune);
    let grown = (memory_field("VmHWM") - before) / 1e6;
    value(&format!("memory of a pruning, {what}"), "MB", grown, 100.0);
    value(&format!("first pruning, {what}"), "ms", 1e3 * first, 2000.0);
    let rounds = (KEPT..=KEPT + ROUNDS).map(|step| {
        let (saved, ()) = timed(|| save(step));
        let (pruned, ()) = timed(prune);
        (saved, pruned)
    });
    let (saved, pruned): (Vec<f64>, Vec<f64>) = rounds.unzip();
    let share = 100.0 * median(pruned) / median(saved);
    value(&format!("pruning after a save, {what}"), "%", share, 10.0);
    drop(run);
    files::remove(&folder);
}

/// Has the system count the most memory of this process from now on.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's accounts are no checkpoint"
)]
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux");
}
