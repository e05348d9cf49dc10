//! Loads on another layout from the memory of a keeper, beside plain copies of the same bytes.

use crate::measure::{against, compared, timed};
use crate::work::{Layout, Specs, allocate, len_bytes};
use crate::{Job, files};
use cairn::checkpoint::{Checkpointer, LoadOptions, Options, SaveOptions, State, Target, World};
use cairn::keeper::{Client, Limits, Server, ServerOptions};
use cairn::store::{AlignedBuffer, Local};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

const STEP: u64 = 1;
/// More than a keeper of one run ever needs.
const MAX_BYTES: u64 = 1 << 50;

/// The memory of each rank, by tensor.
type Memory = Vec<BTreeMap<String, AlignedBuffer>>;

/// Saves rows with a keeper and loads them from its memory, on the same layout and as columns.
pub(crate) fn measure(job: &Job) {
    let home = tempfile::tempdir().expect("a folder for the socket");
    let socket = home.path().join("own/keeper.sock");
    let stop = Arc::new(AtomicBool::new(false));
    let options = ServerOptions {
        limits: Limits::total(MAX_BYTES),
        ..ServerOptions::default()
    };
    let server = Server::bind(&socket, options, stop.clone()).expect("a keeper that listens");
    let run = job.directory.join("kept");
    files::remove(&run);
    thread::scope(|scope| {
        scope.spawn(|| server.run(|_| {}).expect("a keeper that ends well"));
        measure_loads(job, &run, &socket);
        stop.store(true, Ordering::SeqCst);
    });
    files::remove(&run);
}

fn measure_loads(job: &Job, run: &Path, socket: &Path) {
    let rows = Layout::Rows(job.ranks).specs(job.gigabytes);
    let saved: Memory = (0..job.ranks).map(|rank| allocate(&rows, rank)).collect();
    let saved_by = save(run, socket, &rows, &saved);
    // What is not in memory cannot be loaded now.
    for file in files::data(run, STEP) {
        files::remove_file(&file);
    }
    let cases = [
        ("load from the keeper, same layout", Layout::Rows(job.ranks)),
        (
            "load from the keeper, dim 0 to dim 1",
            Layout::Columns(job.ranks),
        ),
    ];
    for (phase, layout) in cases {
        let specs = layout.specs(job.gigabytes);
        let mut targets: Memory = (0..job.ranks).map(|rank| allocate(&specs, rank)).collect();
        let [copies, _, loads] = compared(|kind| match kind {
            0 => timed(|| copy(&saved, &mut targets)).0,
            1 => 0.0,
            _ => timed(|| load(&saved_by[0], &specs, &mut targets)).0,
        });
        against(phase, "memory", len_bytes(&specs), &loads, &copies, 0.7);
    }
}

/// Saves with one thread for each rank, and returns whoever holds the memory.
fn save(run: &Path, socket: &Path, specs: &Specs, memory: &Memory) -> Vec<Checkpointer> {
    thread::scope(|scope| {
        let worlds = World::threads(memory.len()).into_iter().zip(memory);
        let threads = worlds.map(|(world, local)| {
            scope.spawn(move || {
                let mut state = State::new(world.rank());
                for (name, bytes) in local {
                    let added = state.tensor(name, &specs[name], bytes);
                    added.expect("the rank's own part");
                }
                let options = Options {
                    keeper: Some(Arc::new(Client::new(socket))),
                    ..Options::default()
                };
                let store = Arc::new(Local::new(run));
                let checkpointer = Checkpointer::with_options(store, world, options);
                let saving = checkpointer.save(STEP, &state, &SaveOptions::default());
                saving.expect("captured").wait().expect("committed");
                checkpointer
            })
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|saved| saved.expect("a save")).collect()
    })
}

/// Takes what the keeper holds, and loads it.
fn load(run: &Checkpointer, specs: &Specs, memory: &mut Memory) {
    let checkpoint = run.open(STEP).expect("a step that is kept");
    let mut targets = Vec::new();
    for (rank, local) in memory.iter_mut().enumerate() {
        for (name, bytes) in local {
            targets.push(Target::new(name, &specs[name], rank, bytes).expect("its own part"));
        }
    }
    let loaded = checkpoint.load(targets, &LoadOptions::default());
    loaded.expect("intact");
}

/// Copies as many bytes, tensor by tensor, with as many threads as a load has.
fn copy(source: &Memory, target: &mut Memory) {
    let target = target.iter_mut().flat_map(BTreeMap::values_mut);
    let source = source.iter().flat_map(BTreeMap::values);
    let pairs = source.zip(target);
    let pairs = Mutex::new(pairs);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores.clamp(4, 16) {
            scope.spawn(|| {
                let next = || pairs.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some((source, target)) = next() {
                    let len = source.len().min(target.len());
                    target[..len].copy_from_slice(&source[..len]);
                }
            });
        }
    });
}
