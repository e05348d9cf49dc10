//! A file to be written: tensors' bytes, and what stands around them.

use crate::Error;
use crate::assign::cut::byte_group;
use crate::image::Image;
use crate::load::{LoadOptions, load};
use crate::pool::CHUNK_BYTES;
use crate::source::Source;
use crate::target::Target;
use cairn_sharding::{Listed, Piece, TensorSpec};
use cairn_tensor::DType;
use crc_fast::{CrcAlgorithm, Digest};
use std::ops::Range;

/// A file to be written, chunk by chunk from front to back.
pub(super) struct OutputFile {
    pub(super) key: String,
    pub(super) len: u64,
    /// Everything that is no tensor's data, in order.
    pub(super) frames: Vec<Frame>,
    pub(super) items: Vec<OutputItem>,
}

/// Bytes that lie at `begin` in an output file.
pub(super) struct Frame {
    pub(super) begin: u64,
    pub(super) bytes: Vec<u8>,
}

/// A piece of a tensor in an output file.
pub(super) struct OutputItem {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) piece: Piece,
    /// First byte in the file.
    pub(super) begin: u64,
    pub(super) len: u64,
    /// The checksum that the file holds of it.
    pub(super) checksum: Option<Checksum>,
}

/// A CRC-32 that is known once all bytes of an item have passed, and lies in a frame behind them.
pub(super) struct Checksum {
    digest: Digest,
    /// Frames of the file, and places in them.
    places: [(usize, usize); 2],
}

impl Checksum {
    /// To be entered into the frame number `frame` of the file, at these places.
    pub(super) fn new(frame: usize, at: [usize; 2]) -> Self {
        Self::at(at.map(|at| (frame, at)))
    }

    /// To be entered at these places: a frame of the file that lies behind the item, and where in it.
    pub(super) fn at(places: [(usize, usize); 2]) -> Self {
        Self {
            digest: Digest::new(CrcAlgorithm::Crc32IsoHdlc),
            places,
        }
    }
}

impl Frame {
    /// The header of a safetensors file.
    pub(super) fn header(image: Image) -> Self {
        Self {
            begin: 0,
            bytes: image.header,
        }
    }
}

impl OutputFile {
    /// Completes `out`, the bytes of the file from `offset` on, in which the tensors' bytes are.
    pub(super) fn complete(&mut self, offset: u64, out: &mut [u8]) {
        self.sum(offset, out);
        self.fill_frames(offset, out);
    }

    /// Adds tensors' bytes to their checksums, and enters those that are complete.
    fn sum(&mut self, offset: u64, out: &[u8]) {
        for part in self.parts_in(offset, out.len()) {
            let item = &mut self.items[part.item];
            let Some(checksum) = &mut item.checksum else {
                continue;
            };
            let is_last = part.begin + part.range.len() as u64 == item.len;
            checksum.digest.update(&out[part.range]);
            if is_last {
                let crc = u32::try_from(checksum.digest.finalize()).expect("a CRC of 32 bits");
                for (frame, at) in checksum.places {
                    self.frames[frame].bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
                }
            }
        }
    }

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
    pub(super) fn items_in<'a>(
        &self,
        offset: u64,
        out: &'a mut [u8],
    ) -> Vec<(&OutputItem, u64, &'a mut [u8])> {
        let mut found = Vec::new();
        let (mut rest, mut position) = (out, 0);
        for part in self.parts_in(offset, rest.len()) {
            let (bytes, after) = rest[part.range.start - position..].split_at_mut(part.range.len());
            found.push((&self.items[part.item], part.begin, bytes));
            (rest, position) = (after, part.range.end);
        }
        found
    }

    /// The tensors that have bytes in the chunks `chunks` of the file.
    pub(super) fn names_in(&self, chunks: Range<usize>) -> impl Iterator<Item = &str> {
        let offset = chunks.start as u64 * CHUNK_BYTES as u64;
        let parts = self.parts_in(offset, chunks.len() * CHUNK_BYTES);
        let names = parts.into_iter().map(|part| &self.items[part.item].name);
        names.map(String::as_str)
    }

    /// What the `len` bytes of the file from `offset` on hold of items.
    fn parts_in(&self, offset: u64, len: usize) -> Vec<Part> {
        let end = offset + len as u64;
        let first = self
            .items
            .partition_point(|item| item.begin + item.len <= offset);
        let items = self.items.iter().enumerate().skip(first);
        let parts = items
            .take_while(|(_, item)| item.begin < end)
            .map(|(index, item)| {
                let (start, stop) = (item.begin.max(offset), (item.begin + item.len).min(end));
                let inside = |at: u64| usize::try_from(at - offset).expect("inside a chunk");
                Part {
                    item: index,
                    begin: start - item.begin,
                    range: inside(start)..inside(stop),
                }
            });
        parts.filter(|part| !part.range.is_empty()).collect()
    }
}

/// A part of an item that lies in a chunk.
struct Part {
    item: usize,
    /// Where in the item it begins.
    begin: u64,
    /// Where in the chunk it lies.
    range: Range<usize>,
}

impl OutputItem {
    /// Whether `len` bytes from `offset` on are whole elements.
    pub(super) fn is_whole_elements(&self, offset: u64, len: usize) -> bool {
        let group = self.group_bytes();
        let at_end = offset + len as u64 == self.len;
        offset.is_multiple_of(group) && (at_end || (len as u64).is_multiple_of(group))
    }

    fn group_bytes(&self) -> u64 {
        (byte_group(self.dtype) * self.dtype.bits() / 8) as u64
    }

    /// Loads bytes that begin or end inside an element (six-bit types only): the whole elements first, then the part asked for.
    pub(super) fn load_around(
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
    pub(super) fn target<'a>(&self, offset: u64, bytes: &'a mut [u8]) -> Result<Target<'a>, Error> {
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
