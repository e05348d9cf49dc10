//! Saves that are compressed, beside plain saves of the same weights.

use crate::measure::{against, compared, timed, value};
use crate::{Job, files};
use cairn::checkpoint::{
    Checkpointer, LoadOptions, Options, SaveOptions, State, Target, World, step_folder,
};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::store::Local;
use std::path::PathBuf;
use std::sync::Arc;

/// Element types of weights, and the most that may be left of each byte.
const KINDS: [(&str, f64); 2] = [("bf16", 0.70), ("f32", 0.87)];

/// How fast a compressed save or load is at least, of a plain one on the same disk.
const AT_LEAST: f64 = 0.5;

/// Saves and loads weights by one process, plain and compressed.
pub(crate) fn measure(job: &Job) {
    for (dtype, at_most) in KINDS {
        measure_kind(job, dtype, at_most);
    }
}

fn measure_kind(job: &Job, dtype: &str, at_most: f64) {
    #[expect(clippy::cast_possible_truncation, reason = "a size in memory")]
    let bytes = weights(dtype, (job.gigabytes * 1e9) as usize);
    let mut runs = [false, true].map(|compress| Run::new(job, dtype, bytes.len(), compress));
    let mut target = vec![0; bytes.len()];
    let (mut written, mut loads) = (0, [Vec::new(), Vec::new()]);
    let [plain, packed, _] = compared(|kind| {
        let Some(run) = runs.get_mut(kind) else {
            return 0.0;
        };
        let (seconds, len) = run.save(&bytes);
        loads[kind].push(run.load(&mut target));
        assert!(target == bytes, "what was loaded is what was saved");
        written = if kind == 1 { len } else { written };
        seconds
    });
    let what = format!("compressed save, {dtype} weights");
    let ratio = written as f64 / bytes.len() as f64;
    let phase = format!("{what}: bytes written for each of the state");
    value(&phase, "ratio", ratio, at_most);
    let len = bytes.len() as u64;
    let phase = format!("{what}, of a plain one");
    against(&phase, "write", len, &packed, &plain, AT_LEAST);
    let phase = format!("load of compressed {dtype} weights, of plain ones");
    // The first round warms up.
    let [plain, packed] = loads.map(|seconds| seconds[1..].to_vec());
    against(&phase, "read", len, &packed, &plain, AT_LEAST);
    runs.iter().for_each(|run| files::remove(&run.folder));
}

/// A run of one process with one tensor.
struct Run {
    folder: PathBuf,
    checkpointer: Checkpointer,
    spec: TensorSpec,
    step: u64,
}

impl Run {
    fn new(job: &Job, dtype: &str, len: usize, compress: bool) -> Self {
        let name = if compress { "packed" } else { "plain" };
        let folder = job.directory.join(name);
        files::remove(&folder);
        let options = Options {
            compress,
            ..Options::default()
        };
        let store = Arc::new(Local::new(&folder));
        let width = if dtype == "f32" { 4 } else { 2 };
        let text = format!("{dtype}[{}]", len / width);
        let spec = TensorSpec::parse(&Mesh::single(), &text).expect("a vector");
        Self {
            folder,
            checkpointer: Checkpointer::with_options(store, World::single(), options),
            spec,
            step: 0,
        }
    }

    /// Saves the next step in the place of the one before; the seconds it took and the bytes it wrote.
    fn save(&mut self, bytes: &[u8]) -> (f64, u64) {
        files::remove(&self.folder.join(step_folder(self.step)));
        self.step += 1;
        let mut state = State::new(0);
        let added = state.tensor("weights", &self.spec, bytes);
        added.expect("all of it");
        timed(|| {
            let options = SaveOptions::default();
            let saving = self.checkpointer.save(self.step, &state, &options);
            let report = saving.expect("captured").wait().expect("committed");
            report.len_bytes
        })
    }

    fn load(&self, target: &mut [u8]) -> f64 {
        let checkpoint = self.checkpointer.open(self.step).expect("a whole step");
        let target = Target::new("weights", &self.spec, 0, target).expect("all of it");
        let load = || checkpoint.load(vec![target], &LoadOptions::default());
        timed(|| load().expect("intact")).0
    }
}

/// Weights of a normal distribution, as layers begin with and keep for long.
fn weights(dtype: &str, len: usize) -> Vec<u8> {
    let skip = if dtype == "f32" { 0 } else { 2 };
    let mut state = 1_u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let mut bytes = Vec::with_capacity(len + 4);
    while bytes.len() < len {
        // The sum of several is close to normal.
        let weight = (0..6).map(|_| noise()).sum::<f32>() * 0.03;
        bytes.extend_from_slice(&weight.to_le_bytes()[skip..]);
    }
    bytes.truncate(len / 4 * 4);
    bytes
}
