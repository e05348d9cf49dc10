//! Streams tensors from any source into new files: another layout of a checkpoint, a Hugging Face folder, or one that
//! torch loads.
//!
//! All files of a group are filled in step, chunk by chunk. Files list their tensors in the same order, so what one
//! file's chunk needs of a stored row, another's needs at the same time, and each stored byte is read about once.

mod cache;
mod checkpoint;
mod dcp;
mod hf;

use crate::Error;
use crate::assign::cut::byte_group;
use crate::image::Image;
use crate::load::{LoadOptions, load};
use crate::pool::{CHUNK_BYTES, Pool};
use crate::problems::Strictness;
use crate::source::Source;
use crate::target::Target;
use crate::writer::{Chunk, Draining, FileWriter, chunk_count, chunk_len};
use cache::Cached;
use cairn_sharding::{Listed, Piece, TensorSpec};
use cairn_store::{AlignedBuffer, Store};
use cairn_tensor::DType;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use checkpoint::{NewCheckpoint, RewriteReport, rewrite};
pub use dcp::{DcpContents, export_dcp, plan_dcp};
pub use hf::{ExportReport, PlannedFile, export_hf, plan_hf};

/// What can be chosen for a rewrite.
#[derive(Debug, Clone)]
pub struct RewriteOptions {
    /// The most memory for data in flight.
    pub memory_bytes: u64,
    /// Whether what is read is checked against its checksums.
    pub verify: bool,
    /// Counts the bytes written, for a progress bar.
    pub progress: Arc<AtomicU64>,
}

impl Default for RewriteOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            verify: true,
            progress: Arc::default(),
        }
    }
}

/// Chunks of one file that are filled by one load: enough to keep several reads in flight.
const WINDOW_CHUNKS: usize = 8;

/// A file to be written.
struct OutputFile {
    key: String,
    len: u64,
    /// What is known beforehand: headers, and everything else that is no tensor's data, in order.
    frames: Vec<Frame>,
    items: Vec<OutputItem>,
}

/// Bytes that lie at `begin` in an output file.
struct Frame {
    begin: u64,
    bytes: Vec<u8>,
}

/// A piece of a tensor in an output file.
struct OutputItem {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    piece: Piece,
    /// First byte in the file.
    begin: u64,
    len: u64,
}

/// Writes all `files` from `source` and returns the CRCs of each.
fn write_files(
    source: &dyn Source,
    store: &Arc<dyn Store>,
    files: &[OutputFile],
    options: &RewriteOptions,
) -> Result<Vec<Vec<u32>>, Error> {
    let source = Cached::new(source);
    let pool = Arc::new(Pool::new(Some(options.memory_bytes)));
    let chunks = usize::try_from(options.memory_bytes / CHUNK_BYTES as u64).unwrap_or(usize::MAX);
    // Half of the memory is being filled while the other half is being written.
    let group = (chunks / 2).clamp(1, files.len().max(1));
    let window = (chunks / 2 / group).clamp(1, WINDOW_CHUNKS);
    let mut crcs = Vec::with_capacity(files.len());
    for files in files.chunks(group) {
        let writers: Vec<FileWriter> = files
            .iter()
            .map(|file| {
                let (store, key) = (store.clone(), file.key.clone());
                let progress = options.progress.clone();
                FileWriter::start(store, key, file.len, pool.clone(), progress)
            })
            .collect();
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
        let draining: Vec<Draining> = writers.into_iter().map(FileWriter::close).collect();
        for file in draining {
            crcs.push(file.finish()?);
        }
    }
    Ok(crcs)
}

/// Fills and sends the chunks `window` of every file.
fn fill_window(
    source: &dyn Source,
    files: &[OutputFile],
    writers: &[FileWriter],
    window: std::ops::Range<usize>,
    pool: &Pool,
    options: &RewriteOptions,
) -> Result<(), Error> {
    let mut filled: Vec<(usize, usize, usize, AlignedBuffer)> = Vec::new();
    for (file, output) in files.iter().enumerate() {
        for index in window.clone() {
            if let Some(len) = chunk_len(index, output.len) {
                filled.push((file, index, len, pool.take()));
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
        files[*file].fill_frames(offset, out);
        for (item, begin, bytes) in files[*file].items_in(offset, out) {
            if item.is_whole_elements(begin, bytes.len()) {
                targets.push(item.target(begin, bytes)?);
            } else {
                item.load_around(source, begin, bytes, &load_options)?;
            }
        }
    }
    load(source, targets, &load_options)?;
    for (file, index, len, buffer) in filled {
        let in_place = |_, _: &mut [u8]| Ok::<(), Infallible>(());
        match Chunk::fill(index, len, buffer, in_place) {
            Ok(chunk) => writers[file].send(chunk),
            Err((_, never)) => match never {},
        }
    }
    Ok(())
}

impl Frame {
    /// The header of a safetensors file.
    fn header(image: Image) -> Self {
        Self {
            begin: 0,
            bytes: image.header,
        }
    }
}

impl OutputFile {
    /// Copies the parts of frames that lie in `out`, the bytes of the file from `offset` on.
    fn fill_frames(&self, offset: u64, out: &mut [u8]) {
        let end = offset + out.len() as u64;
        let frame_end = |frame: &Frame| frame.begin + frame.bytes.len() as u64;
        let first = self
            .frames
            .partition_point(|frame| frame_end(frame) <= offset);
        for frame in self.frames[first..]
            .iter()
            .take_while(|frame| frame.begin < end)
        {
            let (begin, stop) = (frame.begin.max(offset), frame_end(frame).min(end));
            let [to, from] = [offset, frame.begin]
                .map(|base| usize::try_from(begin - base).expect("inside a frame in memory"));
            let len = usize::try_from(stop - begin).expect("inside a chunk");
            out[to..to + len].copy_from_slice(&frame.bytes[from..from + len]);
        }
    }

    /// Splits `out`, the bytes of the file from `offset` on, by item: each with where in it the bytes begin.
    fn items_in<'a>(
        &self,
        offset: u64,
        out: &'a mut [u8],
    ) -> Vec<(&OutputItem, u64, &'a mut [u8])> {
        let mut found = Vec::new();
        let end = offset + out.len() as u64;
        let first = self
            .items
            .partition_point(|item| item.begin + item.len <= offset);
        let mut rest = out;
        let mut position = offset;
        for item in self.items[first..]
            .iter()
            .take_while(|item| item.begin < end)
        {
            let (begin, stop) = (item.begin.max(offset), (item.begin + item.len).min(end));
            let skip = usize::try_from(begin - position).expect("inside a chunk");
            let len = usize::try_from(stop - begin).expect("inside a chunk");
            let (bytes, after) = rest.split_at_mut(skip).1.split_at_mut(len);
            (rest, position) = (after, stop);
            if len > 0 {
                found.push((item, begin - item.begin, bytes));
            }
        }
        found
    }
}

impl OutputItem {
    /// Whether `len` bytes from `offset` on are whole elements.
    fn is_whole_elements(&self, offset: u64, len: usize) -> bool {
        let group = self.group_bytes();
        let at_end = offset + len as u64 == self.len;
        offset.is_multiple_of(group) && (at_end || (len as u64).is_multiple_of(group))
    }

    fn group_bytes(&self) -> u64 {
        (byte_group(self.dtype) * self.dtype.bits() / 8) as u64
    }

    /// Loads bytes that begin or end inside an element (six-bit types only): the whole elements first, then the part asked for.
    fn load_around(
        &self,
        source: &dyn Source,
        offset: u64,
        bytes: &mut [u8],
        options: &LoadOptions,
    ) -> Result<(), Error> {
        let group = self.group_bytes();
        let begin = offset / group * group;
        let end = (offset + bytes.len() as u64)
            .next_multiple_of(group)
            .min(self.len);
        let mut whole = vec![0; usize::try_from(end - begin).expect("little more than a chunk")];
        load(source, vec![self.target(begin, &mut whole)?], options)?;
        let skip = usize::try_from(offset - begin).expect("less than a group");
        bytes.copy_from_slice(&whole[skip..skip + bytes.len()]);
        Ok(())
    }

    /// The target for `bytes`, which lie `offset` bytes into the item.
    fn target<'a>(&self, offset: u64, bytes: &'a mut [u8]) -> Result<Target<'a>, Error> {
        let bits = self.dtype.bits() as u64;
        let first = usize::try_from(offset * 8 / bits).expect("an element of a tensor");
        let count = bytes.len() * 8 / self.dtype.bits();
        let base = self.piece.flat.as_ref().map_or(0, |range| range.start);
        let piece = Piece {
            region: self.piece.region.clone(),
            flat: Some(base + first..base + first + count),
        };
        let listed = Listed::new([(0, vec![piece])].into());
        let spec = TensorSpec::new(self.dtype, self.shape.clone(), listed).map_err(|source| {
            Error::Placement {
                name: self.name.clone(),
                source,
            }
        })?;
        Target::new(&self.name, &spec, 0, bytes)
    }
}
