//! Loads on other layouts, all target ranks in one process, beside raw reads of the same files.

use crate::measure::{against, compared, extra, timed, value};
use crate::save::LOADED_STEP;
use crate::work::{Layout, Specs, allocate, len_bytes};
use crate::{Job, files, limits};
use cairn::checkpoint::{
    Checkpoint, Checkpointer, LoadOptions, LoadReport, SaveOptions, State, Target, World,
};
use cairn::store::{AlignedBuffer, Local};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// The step of the staged checkpoint, beside the one that the saves left.
const STAGED_STEP: u64 = 100;

/// A load to measure: the step it reads and the layout it fills.
fn cases(job: &Job) -> Vec<(&'static str, u64, Layout)> {
    let n = job.ranks;
    vec![
        ("load, same layout", LOADED_STEP, Layout::Rows(n)),
        ("load, dp to tp", LOADED_STEP, Layout::Tensor(n)),
        ("load, one rank fewer", LOADED_STEP, Layout::Rows(n - 1)),
        ("load, dim 0 to dim 1", LOADED_STEP, Layout::Columns(n)),
        (
            "load, pp 2 to 1",
            STAGED_STEP,
            Layout::Staged { pp: 1, dp: n },
        ),
    ]
}

/// Runs each case in a process of its own, so that its memory can be told apart.
pub(crate) fn measure(job: &Job) {
    save_staged(job);
    for (case, _, _) in cases(job) {
        let status = std::process::Command::new(std::env::current_exe().expect("this program"))
            .arg("load")
            .arg(&job.directory)
            .args([
                job.gigabytes.to_string(),
                job.ranks.to_string(),
                case.to_string(),
            ])
            .status();
        assert!(status.expect("a process").success(), "{case}");
    }
}

/// Measures one case.
pub(crate) fn serve(job: &Job, case: &str) {
    let all = cases(job);
    let (_, step, layout) = all
        .iter()
        .find(|(name, _, _)| *name == case)
        .expect("a case");
    let run = job.directory.join("run");
    let specs = layout.specs(job.gigabytes);
    let world = specs
        .values()
        .map(|spec| spec.max_rank() + 1)
        .max()
        .expect("tensors");
    let mut memory: Vec<BTreeMap<String, AlignedBuffer>> =
        (0..world).map(|rank| allocate(&specs, rank)).collect();
    let paths = files::data(&run, *step);
    let bytes = len_bytes(&specs);
    let before = memory_field("VmRSS");
    let mut over_read = 0.0;
    let [raw, unchecked, checked] = compared(|kind| match kind {
        0 => timed(|| limits::read(&paths)).0,
        kind => {
            let (seconds, report) = timed(|| load(&run, *step, &specs, &mut memory, kind == 2));
            over_read = report.cost.over_read();
            seconds
        }
    });
    let reshards = case != "load, same layout";
    against(
        case,
        "read",
        bytes,
        &checked,
        &raw,
        if reshards { 0.85 } else { 0.9 },
    );
    value(
        &format!("{case}: bytes read for each byte wanted"),
        "ratio",
        over_read,
        1.05,
    );
    if !reshards {
        let cost = extra(&checked, &unchecked);
        value("checksums, cost on load", "ratio", cost, 0.02);
        let extra = memory_field("VmHWM") - before;
        value("extra memory of a load", "MB", extra / 1e6, 256.0);
    }
}

fn load(
    run: &Path,
    step: u64,
    specs: &Specs,
    memory: &mut [BTreeMap<String, AlignedBuffer>],
    verify: bool,
) -> LoadReport {
    let checkpoint = Checkpoint::open(Arc::new(Local::new(run)), step).expect("a committed step");
    let mut targets = Vec::new();
    for (rank, local) in memory.iter_mut().enumerate() {
        for (name, bytes) in local {
            targets.push(Target::new(name, &specs[name], rank, bytes).expect("its own part"));
        }
    }
    let options = LoadOptions {
        verify,
        ..LoadOptions::default()
    };
    checkpoint.load(targets, &options).expect("intact")
}

/// Saves the state as a pipeline of two stages, with one thread for each rank.
fn save_staged(job: &Job) {
    let layout = Layout::Staged {
        pp: 2,
        dp: job.ranks / 2,
    };
    let specs = layout.specs(job.gigabytes);
    let run = job.directory.join("run");
    thread::scope(|scope| {
        for world in World::threads(job.ranks) {
            let (specs, run) = (&specs, &run);
            scope.spawn(move || {
                let rank = world.rank();
                let memory = allocate(specs, rank);
                let mut state = State::new(rank);
                for (name, bytes) in &memory {
                    state
                        .tensor(name, &specs[name], bytes)
                        .expect("the rank's own part");
                }
                let run = Checkpointer::new(Arc::new(Local::new(run)), world);
                let saving = run.save(STAGED_STEP, &state, &SaveOptions::default());
                saving.expect("captured").wait().expect("committed");
            });
        }
    });
}

/// A line of `/proc/self/status`, in bytes.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's accounts are no checkpoint"
)]
pub(crate) fn memory_field(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("a field");
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse::<f64>().expect("a number of kB") * 1024.0
}
