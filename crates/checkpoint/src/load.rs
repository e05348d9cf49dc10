//! Runs a load plan: reads chunks in parallel, checks them, and scatters them to their targets.

use crate::Error;
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::error::{StoreContext, list};
use crate::plan::{Chunk, FilePlan, LoadCost, LoadPlan, Transfer};
use crate::problems::{KeyProblems, Strictness};
use crate::source::Source;
use crate::target::{Target, Wanted};
use cairn_store::AlignedBuffer;
use cairn_tensor::Bands;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most memory a load takes beside its targets: read buffers of all threads.
pub const MAX_LOAD_BUFFER_BYTES: usize = 128 << 20;

/// The bytes that are checked and then copied at once: they stay in a core's own cache in between.
const WINDOW_BYTES: usize = 4 * BLOCK_BYTES;

/// Threads that keep one disk busy. Faster storage may want more.
const DEFAULT_THREADS: usize = 4;

/// What can be chosen for a load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Which differences between checkpoint and target stop it.
    pub strictness: Strictness,
    /// Whether every byte read is checked against its stored checksum.
    pub verify: bool,
    /// Threads that read at once; each takes one read buffer.
    pub threads: usize,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            strictness: Strictness::EXACT,
            verify: true,
            threads: DEFAULT_THREADS,
        }
    }
}

/// What a load did.
#[derive(Debug, Clone)]
pub struct LoadReport {
    /// What was read.
    pub cost: LoadCost,
    /// The differences the strictness allowed.
    pub problems: KeyProblems,
    /// The time to plan.
    pub planning: Duration,
    /// The time to read, check and place everything.
    pub reading: Duration,
}

/// Loads `targets` from `source`.
///
/// # Errors
/// Key problems before any data is read; damage as soon as it is seen, in which case the targets hold a mixture and must not be used.
pub fn load(
    source: &dyn Source,
    targets: Vec<Target>,
    options: &LoadOptions,
) -> Result<LoadReport, Error> {
    let start = Instant::now();
    let (wanted, memory): (Vec<Wanted>, Vec<&mut [u8]>) = targets
        .into_iter()
        .map(|target| (target.wanted, target.bytes))
        .unzip();
    let plan = LoadPlan::new(source, &wanted, &options.strictness)?;
    let planning = start.elapsed();
    let bands: Vec<Bands> = memory.into_iter().map(Bands::new).collect();
    run(&plan, &wanted, &bands, options)?;
    let report = LoadReport {
        cost: plan.cost().clone(),
        problems: plan.problems().clone(),
        planning,
        reading: start.elapsed().saturating_sub(planning),
    };
    tracing::info!(bytes = report.cost.read_bytes, files = report.cost.files, elapsed_ms = %report.reading.as_millis(), "loaded");
    Ok(report)
}

fn run(
    plan: &LoadPlan,
    wanted: &[Wanted],
    bands: &[Bands],
    options: &LoadOptions,
) -> Result<(), Error> {
    let work: Vec<(&FilePlan, &Chunk)> = plan
        .files
        .iter()
        .flat_map(|file| file.chunks.iter().map(move |chunk| (file, chunk)))
        .collect();
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let longest = work.iter().map(|(_, chunk)| chunk.len).max();
    let most = MAX_LOAD_BUFFER_BYTES / crate::pool::CHUNK_BYTES;
    thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, most).min(work.len()) {
            scope.spawn(|| {
                let mut buffer = AlignedBuffer::new(longest.unwrap_or(0));
                while let Some((file, chunk)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let bytes = &mut buffer[..chunk.len];
                    let done = read_chunk(file, chunk, bytes, wanted, bands, options.verify);
                    if let Err(error) = done {
                        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        failure.get_or_insert(error);
                        next.store(work.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn read_chunk(
    plan: &FilePlan,
    chunk: &Chunk,
    bytes: &mut [u8],
    wanted: &[Wanted],
    bands: &[Bands],
    verify: bool,
) -> Result<(), Error> {
    let key = &plan.file.key;
    plan.file
        .reader
        .read_at(chunk.offset, bytes)
        .doing(|| format!("read bytes {}.. of `{key}`", chunk.offset))?;
    let mut base = usize::try_from(chunk.offset).unwrap_or(usize::MAX);
    for window in bytes.chunks(WINDOW_BYTES) {
        let range = base..base + window.len();
        let transfers = chunk.transfers_in(plan, &range);
        if verify {
            check_blocks(plan, base, window, &transfers, wanted)?;
        }
        for transfer in transfers {
            let runs = transfer.runs.in_source(range.clone());
            let scattered = bands[transfer.target].scatter(window, base, runs);
            scattered.map_err(|source| Error::Copy {
                name: wanted[transfer.target].name.clone(),
                source,
            })?;
        }
        base = range.end;
    }
    Ok(())
}

/// Compares each block of `bytes`, which lie at `base` in the file, with its checksum.
fn check_blocks(
    plan: &FilePlan,
    base: usize,
    bytes: &[u8],
    transfers: &[&Transfer],
    wanted: &[Wanted],
) -> Result<(), Error> {
    let Some(crcs) = &plan.file.crcs else {
        return Ok(());
    };
    let first = base / BLOCK_BYTES;
    for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        let stored = crcs.get(first + index).copied();
        let actual = crc32c(block);
        if stored != Some(actual) {
            let begin = base + index * BLOCK_BYTES;
            let range = begin..begin + block.len();
            let mut names: Vec<&str> = transfers
                .iter()
                .filter(|transfer| transfer.runs.in_source(range.clone()).next().is_some())
                .map(|transfer| wanted[transfer.target].name.as_str())
                .collect();
            names.dedup();
            return Err(damage(&plan.file.key, range, &names, stored, actual));
        }
    }
    Ok(())
}

/// The error for a block whose bytes are not the ones that were written.
pub(crate) fn damage(
    key: &str,
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
    Error::damaged(key, reason)
}
