//! Makes a step that refers to files of others, or whose files are compressed, one of plain files.

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::checksum::BLOCK_BYTES;
use crate::commit::{Attempt, IfCommitted, Supersedes};
use crate::delta::{put_hashes, read_hashes};
use crate::error::StoreContext;
use crate::load::damage;
use crate::names::attempt_name;
use crate::part::{FileEntry, Part};
use crate::pool::{CHUNK_BYTES, Pool};
use crate::run;
use crate::save::{asset_entries, put_assets};
use crate::source::{Source, SourceFile};
use crate::standing::committed_attempt;
use crate::world::World;
use crate::writer::{Chunk, Output, Sink, chunk_count, chunk_len};
use cairn_store::Store;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The memory for bytes on their way.
const BUFFER_BYTES: u64 = 64 << 20;

/// What a compaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactReport {
    /// The step.
    pub step: u64,
    /// The number of data files written.
    pub files: usize,
    /// Their bytes.
    pub len_bytes: u64,
}

/// Writes `step` anew as plain safetensors files, which refer to no other step and are not compressed; `None` if it is so anyway.
/// The session of `world` names the new attempt; `progress` counts the bytes written.
///
/// # Crash safety
/// The new files are an attempt of their own, which takes the place of the old one when it is complete. The old one stays for those
/// that read it, until a pruning takes it away.
///
/// # Errors
/// If something is damaged: the step stays as it was.
pub fn compact(
    store: &Arc<dyn Store>,
    step: u64,
    world: &World,
    progress: &Arc<AtomicU64>,
) -> Result<Option<CompactReport>, Error> {
    let old = run::open(store, step, None)?;
    if old.manifest().is_plain() {
        return Ok(None);
    }
    let attempt = Attempt {
        step,
        name: attempt_name(world.session(), step, 0),
        world: old.manifest().writers(),
        if_committed: IfCommitted::Replace,
        launch: None,
        supersedes: Supersedes::Nothing,
    };
    let mut report = CompactReport {
        step,
        files: 0,
        len_bytes: 0,
    };
    for writer in 0..attempt.world {
        if let Some(file) = compact_writer(store, &old, &attempt, writer, progress)? {
            report.files += 1;
            report.len_bytes += file.len_bytes;
        }
    }
    match committed_attempt(store.as_ref(), step)? {
        Some(name) if name == old.manifest().attempt => attempt.commit(store.as_ref())?,
        name => {
            let attempt = name.unwrap_or_else(|| "none".into());
            return Err(Error::StepTaken { step, attempt });
        }
    }
    tracing::info!(step, bytes = report.len_bytes, "compacted");
    Ok(Some(report))
}

/// Writes the whole file of a writer, and its part.
fn compact_writer(
    store: &Arc<dyn Store>,
    old: &Checkpoint,
    attempt: &Attempt,
    writer: usize,
    progress: &Arc<AtomicU64>,
) -> Result<Option<FileEntry>, Error> {
    let keys = attempt.keys();
    let read = old.part(writer)?;
    let (read, blocks) = read.as_ref();
    let file = match &read.part.file {
        None => None,
        Some(file) => {
            let source = old.open_file(writer)?;
            copy(store, &source, keys.data(writer), progress)?;
            let hashes = read_hashes(store.as_ref(), old.keys(), writer, &file.crcs_sha256);
            if let Ok(hashes) = hashes {
                put_hashes(store.as_ref(), &keys, writer, &file.crcs_sha256, &hashes)?;
            }
            let (len, start) = (file.len_bytes, file.data_start);
            Some(FileEntry::new(writer, len, start, &blocks.crcs))
        }
    };
    let mut part = Part {
        attempt: attempt.name.clone(),
        rewrite_of: Some(old.manifest().attempt.clone()),
        file: file.clone(),
        ..read.part.clone()
    };
    if writer == 0 {
        let assets = old.assets()?.into_iter().collect();
        put_assets(store.as_ref(), attempt, &assets)?;
        part.assets = asset_entries(&assets);
    }
    part.put(store.as_ref(), &keys, &blocks.crcs, None)?;
    Ok(file)
}

/// Writes the bytes of `source` as one file, and compares their checksums.
fn copy(
    store: &Arc<dyn Store>,
    source: &SourceFile,
    key: String,
    progress: &Arc<AtomicU64>,
) -> Result<(), Error> {
    let (pool, len) = (Arc::new(Pool::new(Some(BUFFER_BYTES))), source.reader.len());
    let output = Output::new(store.clone(), key, len, pool.clone(), progress.clone());
    let sink = Sink::file(output);
    for index in 0..chunk_count(len) {
        match read_chunk(source, index, &pool) {
            Ok(chunk) => sink.send(chunk),
            Err(error) => {
                sink.abandon();
                return Err(error);
            }
        }
    }
    let written = sink.close().finish()?.crcs;
    let stored = source.crcs.as_deref().unwrap_or_default();
    let differs = (0..written.len()).find(|block| stored.get(*block) != Some(&written[*block]));
    match differs {
        None => Ok(()),
        Some(block) => {
            let begin = block * BLOCK_BYTES;
            let end = usize::try_from(len).unwrap_or(usize::MAX);
            let range = begin..(begin + BLOCK_BYTES).min(end);
            let crc = stored.get(block).copied();
            Err(damage(source, range, &[], crc, written[block]))
        }
    }
}

fn read_chunk(source: &SourceFile, index: usize, pool: &Pool) -> Result<Chunk, Error> {
    let mut buffer = pool.take()?;
    let offset = index as u64 * CHUNK_BYTES as u64;
    let len = chunk_len(index, source.reader.len()).unwrap_or(0);
    let read = source.reader.read_at(offset, &mut buffer[..len]);
    read.doing(|| format!("read bytes {offset}.. of `{}`", source.key))?;
    Ok(Chunk::new(index, len, buffer))
}
