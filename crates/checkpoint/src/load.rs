//! Runs a load plan: reads chunks in parallel, checks them, and scatters them to their targets.

mod deal;
mod fill;
mod meeting;
mod note;
mod parcel;
mod together;
mod watch;

use crate::Error;
use crate::error::list;
use crate::peers::Peers;
use crate::plan::{FilePlan, LoadCost, LoadPlan};
use crate::problems::{KeyProblems, Strictness};
use crate::source::{Source, SourceFile};
use crate::sync::thread;
use crate::target::{Target, Wanted};
use crate::workers::{Workers, asking, computing};
use cairn_store::{AlignedBuffer, ObjectReader};
use fill::{Filling, View};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// The most memory a load takes beside its targets: read buffers of all threads.
pub const MAX_LOAD_BUFFER_BYTES: usize = 128 << 20;

/// Threads that keep one disk busy. Faster storage may want more.
const DEFAULT_THREADS: usize = 4;

/// What can be chosen for a load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Which differences between checkpoint and target stop it.
    pub strictness: Strictness,
    /// Whether every byte read is checked against its stored checksum.
    pub verify: bool,
    /// Threads that read at once; each takes one read buffer. From a service far away at least 16 do, and from memory as many as there are
    /// cores, up to 16.
    pub threads: usize,
    /// The processes of this machine that load at the same time; each stored byte is then read by one of them.
    pub peers: Option<Peers>,
    /// Counts the bytes read, for a progress bar.
    pub progress: Arc<AtomicU64>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            strictness: Strictness::EXACT,
            verify: true,
            threads: DEFAULT_THREADS,
            peers: None,
            progress: Arc::default(),
        }
    }
}

/// What a load did.
#[derive(Debug, Clone)]
pub struct LoadReport {
    /// What was read.
    pub cost: LoadCost,
    /// The bytes that peers read and handed to this process.
    pub received_bytes: u64,
    /// The differences the strictness allowed.
    pub problems: KeyProblems,
    /// Files of the fast tier that were damaged and have been replaced by good ones.
    pub mended: Vec<String>,
    /// The time to plan.
    pub planning: Duration,
    /// The time to read, check and place everything.
    pub reading: Duration,
}

/// Loads `targets` from `source`.
///
/// # Collective
/// With [`Peers`], every peer calls it, and either all of them succeed or none does.
///
/// # Errors
/// Key problems before any data is read; damage as soon as it is seen, in which case the targets hold a mixture and must not be used.
pub fn load(
    source: &dyn Source,
    targets: Vec<Target>,
    options: &LoadOptions,
) -> Result<LoadReport, Error> {
    let (wanted, memory): (Vec<Wanted>, Vec<&mut [u8]>) = targets
        .into_iter()
        .map(|target| (target.wanted, target.bytes))
        .unzip();
    let filling = Filling::new(&wanted, memory, options);
    let mut report = match &options.peers {
        Some(peers) if peers.ranks.len() != 1 => {
            together::load(source, &wanted, &filling, peers, options)
        }
        _ => load_alone(source, &wanted, &filling, options),
    }?;
    report.mended = source.mend();
    tracing::info!(bytes = report.cost.read_bytes, files = report.cost.files, elapsed_ms = %report.reading.as_millis(), "loaded");
    Ok(report)
}

fn load_alone(
    source: &dyn Source,
    wanted: &[Wanted],
    filling: &Filling,
    options: &LoadOptions,
) -> Result<LoadReport, Error> {
    let start = Instant::now();
    let plan = LoadPlan::new(source, wanted, &options.strictness)?;
    let planning = start.elapsed();
    let threads = threads(&plan, options);
    run(&plan, filling, threads)?;
    Ok(LoadReport {
        cost: plan.cost().clone(),
        received_bytes: 0,
        problems: plan.problems().clone(),
        mended: Vec::new(),
        planning,
        reading: start.elapsed().saturating_sub(planning),
    })
}

/// How many threads read: more where one waits for answers or for memory.
fn threads(plan: &LoadPlan, options: &LoadOptions) -> usize {
    let any = |is_so: fn(&dyn ObjectReader) -> bool| {
        let mut files = plan.files.iter();
        files.any(|plan| is_so(plan.file.reader.as_ref()))
    };
    let least = match any(|reader| reader.gap_bytes() > 0) {
        true => asking(true),
        false if any(|reader| reader.is_memory()) => computing(),
        false => 1,
    };
    options.threads.max(least)
}

/// Loads tensors that are known to be in `source` as they are asked for, on one thread.
pub(crate) fn load_known(source: &dyn Source, targets: Vec<Target>) -> Result<(), Error> {
    let (wanted, memory): (Vec<Wanted>, Vec<&mut [u8]>) = targets
        .into_iter()
        .map(|target| (target.wanted, target.bytes))
        .unzip();
    let options = LoadOptions::default();
    let plan = LoadPlan::of_known(source, &wanted)?;
    run(&plan, &Filling::new(&wanted, memory, &options), 1)
}

fn run(plan: &LoadPlan, filling: &Filling, threads: usize) -> Result<(), Error> {
    let chunks = |file| chunks_of(file).map(|view| (view.1.len, view));
    let work: Vec<(usize, View)> = plan.files.iter().flat_map(chunks).collect();
    let longest = work.iter().map(|(len, _)| *len).max().unwrap_or(0);
    let most = MAX_LOAD_BUFFER_BYTES / crate::pool::CHUNK_BYTES;
    let workers = Workers::new(work.len());
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, most).min(work.len()) {
            scope.spawn(|| {
                let mut buffer = AlignedBuffer::new(longest);
                workers.each(|index| {
                    let (len, view) = work[index];
                    filling.read(view, &mut buffer[..len])
                });
            });
        }
    });
    workers.finish()
}

/// Every chunk of a file, with the plan it belongs to.
fn chunks_of(plan: &FilePlan) -> impl Iterator<Item = View<'_>> {
    plan.chunks.iter().map(move |chunk| (plan, chunk))
}

/// The error for a block whose bytes are not the ones that were written.
pub(crate) fn damage(
    file: &SourceFile,
    range: std::ops::Range<usize>,
    tensors: &[&str],
    stored: Option<u32>,
    actual: u32,
) -> Error {
    let quoted: Vec<String> = tensors.iter().map(|name| format!("`{name}`")).collect();
    let holding = match quoted.is_empty() {
        true => "the header or padding".to_string(),
        false => format!("tensor {}", list(&quoted)),
    };
    let stored = stored.map_or("no checksum".into(), |crc| format!("CRC {crc:08x}"));
    let reason = format!(
        "bytes {}..{} ({holding}) have CRC {actual:08x}, written with {stored}",
        range.start, range.end
    );
    let origins = file.origins.as_ref();
    match origins.and_then(|origins| origins.file_at(range.start as u64)) {
        Some(base) if base != file.key => {
            let reason = format!("a block that `{}` refers to: there, {reason}", file.key);
            Error::damaged(base, reason)
        }
        _ => Error::damaged(&file.key, reason),
    }
}
