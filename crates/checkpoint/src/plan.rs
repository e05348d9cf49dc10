//! The load plan: which bytes of which files go where, as plain data, before any of them is read.

mod ranges;
mod routes;

use crate::Error;
use crate::ema::is_stored_average;
use crate::pool::CHUNK_BYTES;
use crate::problems::{KeyProblems, Mismatch, Missing, Strictness};
use crate::source::{Source, SourceFile};
use crate::target::Wanted;
use crate::workers::{asking, computing, gather};
use cairn_tensor::{Loop, Runs};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use ranges::Chunk;
pub(crate) use routes::Routes;

/// As many targets are planned by several threads at the same time.
const MANY_TARGETS: usize = 500;

/// The bytes that a thread takes at a time of what is in memory: little, so that all threads end at the same time.
const MEMORY_CHUNK_BYTES: usize = 2 << 20;

/// A copy from the bytes of a file to the memory of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) target: usize,
    /// Source offsets count from the start of the file.
    pub(crate) runs: Runs,
    /// One past the last source byte.
    pub(crate) source_end: usize,
}

impl Transfer {
    fn new(target: usize, runs: Runs) -> Self {
        let spread = |level: &Loop| (level.count - 1) * level.source_stride;
        let reach: usize = runs.loops.iter().map(spread).sum();
        Self {
            target,
            source_end: runs.source_offset + reach + runs.run_bytes,
            runs,
        }
    }

    /// The same transfer from bytes that lie `offset` further along.
    fn moved(mut self, offset: u64) -> Self {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        self.runs.source_offset = self.runs.source_offset.saturating_add(offset);
        self.source_end = self.source_end.saturating_add(offset);
        self
    }
}

/// What is read of one file.
#[derive(Debug)]
pub(crate) struct FilePlan {
    pub(crate) file: Arc<SourceFile>,
    pub(crate) transfers: Vec<Transfer>,
    pub(crate) chunks: Vec<Chunk>,
    /// The bytes of all dense stretches that the chunks are read for, each counted once.
    span_bytes: u64,
}

impl FilePlan {
    /// Makes the offsets of `transfers` absolute. Nothing is read of the file yet.
    pub(crate) fn new(file: Arc<SourceFile>, transfers: Vec<Transfer>) -> Self {
        let start = file.data_start;
        let moved = transfers.into_iter().map(|transfer| transfer.moved(start));
        Self {
            transfers: moved.collect(),
            chunks: Vec::new(),
            span_bytes: 0,
            file,
        }
    }

    /// The blocks this file's transfers touch, as stretches of bytes in order.
    pub(crate) fn blocks(&self) -> Vec<Range<usize>> {
        ranges::blocks(&self.transfers, self.file.reader.len())
    }

    /// The stored bytes that are needed, each counted once, and the bytes of all targets.
    pub(crate) fn needs(&self) -> (u64, u64) {
        let targets = self.transfers.iter();
        let target_bytes = targets
            .map(|transfer| transfer.runs.len_bytes() as u64)
            .sum();
        // Spans count small gaps between runs; targets count bytes that several of them want.
        let wanted_bytes = self.span_bytes.min(target_bytes);
        (wanted_bytes, target_bytes)
    }

    /// Reads the file in `chunks`, which lie in order and cover all blocks.
    pub(crate) fn read_in(&mut self, chunks: Vec<Chunk>) {
        (self.chunks, self.span_bytes) = self.attached(chunks);
    }

    /// What is needed of the file, as chunks of a good size.
    fn cut(&self) -> Vec<Chunk> {
        let reader = &self.file.reader;
        let turns = |transfer: &Transfer| transfer.runs.is_gather();
        // What is turned round on the way has the longer stretches in the target the more there is of the source.
        let len = match reader.is_memory() && !self.transfers.iter().any(turns) {
            true => CHUNK_BYTES.min(MEMORY_CHUNK_BYTES),
            false => CHUNK_BYTES,
        };
        ranges::cut(&self.transfers, reader.len(), reader.gap_bytes(), len)
    }

    /// The chunks with the transfers they feed, and the bytes of all dense stretches that these need.
    fn attached(&self, mut chunks: Vec<Chunk>) -> (Vec<Chunk>, u64) {
        ranges::attach(&self.transfers, &mut chunks);
        (chunks, ranges::span_bytes(&self.transfers))
    }
}

/// How much a load will read, and what for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadCost {
    /// The bytes of stored tensors that are needed, each counted once.
    pub wanted_bytes: u64,
    /// The bytes that will be read: wanted ones, and the rest of the checksummed blocks they lie in. Derived tensors count with
    /// their own bytes; those of the tensors they are cast from are twice as many.
    pub read_bytes: u64,
    /// The files that will be opened.
    pub files: usize,
    /// The read requests that will be made.
    pub reads: usize,
    /// The bytes of all targets.
    pub target_bytes: u64,
}

impl LoadCost {
    /// The bytes read for each byte wanted.
    pub fn over_read(&self) -> f64 {
        if self.wanted_bytes == 0 {
            return 1.0;
        }
        self.read_bytes as f64 / self.wanted_bytes as f64
    }
}

/// A load, ready to run: print it, price it, then run it.
#[derive(Debug)]
pub struct LoadPlan {
    pub(crate) files: Vec<FilePlan>,
    problems: KeyProblems,
    cost: LoadCost,
}

impl LoadPlan {
    /// Plans how to load every part of `wanted` from `source`. Reads small metadata, no tensor data.
    ///
    /// # Errors
    /// [`Error::Keys`] with all differences at once if `strictness` does not allow them; damage found in the metadata.
    pub fn new(
        source: &dyn Source,
        wanted: &[Wanted],
        strictness: &Strictness,
    ) -> Result<Self, Error> {
        let problems = compare(source, wanted, strictness)?;
        Self::without(problems, source, wanted)
    }

    /// Plans how to load every part of `wanted`, which are known to be in `source` as they are asked for.
    pub(crate) fn of_known(source: &dyn Source, wanted: &[Wanted]) -> Result<Self, Error> {
        Self::without(KeyProblems::default(), source, wanted)
    }

    /// Plans how to load what has no `problems`.
    fn without(
        problems: KeyProblems,
        source: &dyn Source,
        wanted: &[Wanted],
    ) -> Result<Self, Error> {
        let usable = problems.usable(wanted);
        let routes = Routes::new(source, usable.map(|target| (target, &wanted[target])))?;
        let files = open_files(source, routes.by_file)?;
        let cost = cost(&files, routes.target_bytes);
        Ok(Self {
            files,
            problems,
            cost,
        })
    }

    /// The differences that the strictness allowed.
    pub fn problems(&self) -> &KeyProblems {
        &self.problems
    }

    /// How much will be read.
    pub fn cost(&self) -> &LoadCost {
        &self.cost
    }

    /// Each file with the bytes that will be read of it.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.files.iter().map(|plan| {
            let bytes = plan.chunks.iter().map(|chunk| chunk.len as u64).sum();
            (plan.file.key.as_str(), bytes)
        })
    }
}

/// Lists everything that does not fit, as an error if `strictness` does not allow it.
pub(crate) fn compare(
    source: &dyn Source,
    wanted: &[Wanted],
    strictness: &Strictness,
) -> Result<KeyProblems, Error> {
    let problems = differences(source, wanted);
    match problems.allowed_by(strictness) {
        true => Ok(problems),
        false => Err(Error::Keys(Box::new(problems))),
    }
}

fn differences(source: &dyn Source, wanted: &[Wanted]) -> KeyProblems {
    let mut problems = KeyProblems::default();
    let mut seen = HashSet::new();
    for want in wanted.iter().filter(|want| seen.insert(want.name.as_str())) {
        let Some(stored) = source.find(&want.name) else {
            if source.keeps(&want.name) {
                problems.kept.push(want.name.clone());
                continue;
            }
            problems.missing.push(Missing {
                name: want.name.clone(),
                near: None,
            });
            continue;
        };
        if stored.dtype != want.spec.dtype() || stored.shape != want.spec.shape() {
            problems.mismatched.push(Mismatch {
                name: want.name.clone(),
                wanted: format!("{}{:?}", want.spec.dtype(), want.spec.shape()),
                stored: format!("{}{:?}", stored.dtype, stored.shape),
            });
        }
    }
    let unexpected = source
        .names()
        .into_iter()
        .filter(|name| !seen.contains(name))
        // Averages lie beside the state; who wants them names them.
        .filter(|name| !is_stored_average(name));
    problems.unexpected = unexpected.map(str::to_string).collect();
    problems.suggest(&source.names());
    problems
}

impl KeyProblems {
    /// The indices of those of `wanted` that can be loaded.
    pub(crate) fn usable(&self, wanted: &[Wanted]) -> impl Iterator<Item = usize> {
        let unusable = self.unusable();
        (0..wanted.len()).filter(move |index| !unusable.contains(wanted[*index].name.as_str()))
    }

    fn unusable(&self) -> HashSet<&str> {
        let missing = self.missing.iter().map(|missing| missing.name.as_str());
        let mismatched = self
            .mismatched
            .iter()
            .map(|mismatch| mismatch.name.as_str());
        let kept = self.kept.iter().map(String::as_str);
        missing.chain(mismatched).chain(kept).collect()
    }
}

/// Opens the files, makes offsets absolute, and cuts what is needed into reads.
pub(crate) fn open_files(
    source: &dyn Source,
    by_file: BTreeMap<usize, Vec<Transfer>>,
) -> Result<Vec<FilePlan>, Error> {
    let numbers: Vec<usize> = by_file.keys().copied().collect();
    let opened = open_all(source, &numbers)?;
    let many = by_file.values().map(Vec::len).sum::<usize>() >= MANY_TARGETS;
    let files = opened.into_iter().zip(by_file.into_values());
    let mut files: Vec<FilePlan> = files
        .map(|(file, transfers)| FilePlan::new(file, transfers))
        .collect();
    let reads = gather(files.len(), threads(many), |index| {
        let plan = &files[index];
        Ok::<_, Error>(plan.attached(plan.cut()))
    })?;
    for (plan, reads) in files.iter_mut().zip(reads) {
        (plan.chunks, plan.span_bytes) = reads;
    }
    Ok(files)
}

/// How many threads plan.
fn threads(many: bool) -> usize {
    if many { computing() } else { 1 }
}

/// Opens files, several at the same time: many, if the first one turns out to be far away.
pub(crate) fn open_all(
    source: &dyn Source,
    numbers: &[usize],
) -> Result<Vec<Arc<SourceFile>>, Error> {
    let Some((first, others)) = numbers.split_first() else {
        return Ok(Vec::new());
    };
    let mut opened = vec![source.open_file(*first)?];
    let is_far = opened[0].reader.gap_bytes() > 0;
    let threads = asking(is_far).max(computing());
    let others = gather(others.len(), threads, |index| {
        source.open_file(others[index])
    });
    opened.extend(others?);
    Ok(opened)
}

/// What reading all chunks of `files` costs.
pub(crate) fn cost(files: &[FilePlan], target_bytes: u64) -> LoadCost {
    let spans: u64 = files.iter().map(|plan| plan.span_bytes).sum();
    LoadCost {
        // Spans count small gaps between runs; targets count bytes that several of them want.
        wanted_bytes: spans.min(target_bytes),
        read_bytes: files
            .iter()
            .flat_map(|plan| &plan.chunks)
            .map(|chunk| chunk.len as u64)
            .sum(),
        files: files.len(),
        reads: files.iter().map(|plan| plan.chunks.len()).sum(),
        target_bytes,
    }
}

impl fmt::Display for LoadPlan {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let cost = &self.cost;
        write!(
            f,
            "read {} bytes of {} files in {} reads for {} bytes wanted (over-read {:.3})",
            cost.read_bytes,
            cost.files,
            cost.reads,
            cost.wanted_bytes,
            cost.over_read()
        )
    }
}
