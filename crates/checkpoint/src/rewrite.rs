//! Streams tensors from any source into new files: another layout of a checkpoint, a Hugging Face folder, or one that
//! torch loads.
//!
//! All files of a group are filled in step, chunk by chunk. Files list their tensors in the same order, so what one
//! file's chunk needs of a stored row, another's needs at the same time, and each stored byte is read about once.

mod cache;
mod checkpoint;
mod chosen;
mod dcp;
pub mod edit;
mod folder;
mod framed;
mod guard;
mod hf;
mod journal;
mod output;
mod safetensors;

use crate::Error;
use crate::load::{LoadOptions, load};
use crate::pool::{CHUNK_BYTES, Pool};
use crate::problems::Strictness;
use crate::source::Source;
use crate::writer::{Chunk, Draining, Output, Sink, chunk_count, chunk_len};
use cache::Cached;
use cairn_device::Buffer;
use cairn_store::Store;
use output::OutputFile;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

pub use checkpoint::{NewCheckpoint, RewriteReport, rewrite};
pub use chosen::Chosen;
pub use dcp::{DcpContents, export_dcp, plan_dcp};
pub use folder::{ExportReport, NewFolder, PlannedFile, model_files};
pub use framed::{FileContents, FileFormat, export_file, plan_file};
pub use hf::{export_hf, plan_hf};
pub use journal::UNFINISHED_FOLDER;
pub use safetensors::{export_safetensors, plan_safetensors};

/// What can be chosen for a rewrite.
#[derive(Debug, Clone)]
pub struct RewriteOptions {
    /// The most memory for data in flight.
    pub memory_bytes: u64,
    /// Whether what is read is checked against its checksums.
    pub verify: bool,
    /// Counts the bytes written, for a progress bar.
    pub progress: Arc<AtomicU64>,
    /// Tells this rewrite from others: words that change with the source and with what is made of it. Without any, a new
    /// checkpoint that is cut short cannot be taken up again.
    pub identity: String,
    /// What becomes of a rewrite to the same place that was cut short.
    pub unfinished: OnUnfinished,
    /// Whether a model that lies in the place of an export goes, once the new one is whole.
    pub replace: bool,
    /// Whether everything is checked and nothing is written.
    pub dry_run: bool,
}

/// What becomes of an earlier rewrite to the same place that was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUnfinished {
    /// Nothing, and the new one is refused.
    Refuse,
    /// The new one goes on where it ended, if source and options are the same. Without one it begins.
    Resume,
    /// It is deleted.
    #[default]
    Discard,
}

impl Default for RewriteOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            verify: true,
            progress: Arc::default(),
            identity: String::new(),
            unfinished: OnUnfinished::default(),
            replace: false,
            dry_run: false,
        }
    }
}

impl RewriteOptions {
    /// The chunks that are filled at a time: half of the memory, while the other half is being written.
    fn filled_chunks(&self) -> usize {
        let chunks = usize::try_from(self.memory_bytes / CHUNK_BYTES as u64).unwrap_or(usize::MAX);
        chunks / 2
    }

    /// How many of `files` are written at a time.
    fn group_len(&self, files: usize) -> usize {
        self.filled_chunks().clamp(1, files.max(1))
    }
}

/// Chunks of one file that are filled by one load: enough to keep several reads in flight.
const WINDOW_CHUNKS: usize = 8;

/// Writes all `files` from `source` and returns the CRCs of each.
fn write_files(
    source: &dyn Source,
    store: &Arc<dyn Store>,
    files: &mut [OutputFile],
    options: &RewriteOptions,
) -> Result<Vec<Vec<u32>>, Error> {
    let source = Cached::new(source);
    let pool = Arc::new(Pool::new(Some(options.memory_bytes)));
    let group = options.group_len(files.len());
    let window = (options.filled_chunks() / group).clamp(1, WINDOW_CHUNKS);
    let mut crcs = Vec::with_capacity(files.len());
    for files in files.chunks_mut(group) {
        let writers: Vec<Sink> = files
            .iter()
            .map(|file| {
                let (store, key) = (store.clone(), file.key.clone());
                let progress = options.progress.clone();
                Sink::file(Output::new(store, key, file.len, pool.clone(), progress))
            })
            .collect();
        source.look_up(&names_in(files, 0..window));
        let last = files.iter().map(|file| chunk_count(file.len)).max();
        for first in (0..last.unwrap_or(0)).step_by(window) {
            fill_window(
                &source,
                files,
                &writers,
                first..first + window,
                &pool,
                options,
            )?;
        }
        let draining: Vec<Draining> = writers.into_iter().map(Sink::close).collect();
        for file in draining {
            crcs.push(file.finish()?.crcs);
        }
    }
    Ok(crcs)
}

/// The tensors that have bytes in the chunks `window` of some file.
fn names_in(files: &[OutputFile], window: Range<usize>) -> BTreeSet<&str> {
    let names = files.iter().map(|file| file.names_in(window.clone()));
    names.flatten().collect()
}

/// Fills and sends the chunks `window` of every file.
fn fill_window(
    source: &Cached,
    files: &mut [OutputFile],
    writers: &[Sink],
    window: Range<usize>,
    pool: &Pool,
    options: &RewriteOptions,
) -> Result<(), Error> {
    let mut filled: Vec<(usize, usize, usize, Buffer)> = Vec::new();
    for (file, output) in files.iter().enumerate() {
        for index in window.clone() {
            if let Some(len) = chunk_len(index, output.len) {
                filled.push((file, index, len, pool.take()?));
            }
        }
    }
    let load_options = LoadOptions {
        strictness: Strictness::PARTIAL,
        verify: options.verify,
        ..LoadOptions::default()
    };
    let mut targets = Vec::new();
    for (file, index, len, buffer) in &mut filled {
        let offset = *index as u64 * CHUNK_BYTES as u64;
        let out = &mut buffer[..*len];
        for (item, begin, bytes) in files[*file].items_in(offset, out) {
            if item.is_whole_elements(begin, bytes.len()) {
                targets.push(item.target(begin, bytes)?);
            } else {
                item.load_around(source, begin, bytes, &load_options)?;
            }
        }
    }
    // Where the tensors of the next window lie is found while those of this one are read.
    let names = names_in(files, window.start..window.end + window.len());
    thread::scope(|scope| {
        scope.spawn(|| source.look_up(&names));
        load(source, targets, &load_options)
    })?;
    for (file, index, len, mut buffer) in filled {
        let offset = index as u64 * CHUNK_BYTES as u64;
        files[file].complete(offset, &mut buffer[..len]);
        writers[file].send(Chunk::new(index, len, buffer));
    }
    Ok(())
}
