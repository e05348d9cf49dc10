//! Packs and unpacks one block.
//!
//! ```text
//! 0 │ the block as it is
//! w │ w lengths, u32 each; the highest bit is set if the plane is as it is │ the planes │ what is left of the block
//! ```

use super::measure::{WIDTHS, measure};
use crate::checksum::BLOCK_BYTES;
use std::io;
use zstd::bulk::{Compressor, Decompressor};

/// The most bytes that a packed block has.
pub(super) const MAX_BYTES: usize = BLOCK_BYTES + 1;

/// What stands before a block that is kept as it is.
const AS_IT_IS: u8 = 0;

/// Set in the length of a plane that is kept as it is.
const PLAIN_PLANE: u32 = 1 << 31;

/// Fast, and as good as any for planes: they have no long repetitions to find.
const LEVEL: i32 = 1;

/// Packs blocks, one after another.
pub(super) struct Encoder {
    compressor: Compressor<'static>,
    /// The planes of a block, one behind the other.
    planes: Vec<u8>,
    packed: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self {
            compressor: Compressor::new(LEVEL).expect("it is a level that there is"),
            planes: Vec::new(),
            packed: Vec::with_capacity(zstd::zstd_safe::compress_bound(BLOCK_BYTES)),
        }
    }

    /// Appends `block` to `out`, packed; at most [`MAX_BYTES`].
    pub(super) fn pack(&mut self, block: &[u8], out: &mut Vec<u8>) {
        let begin = out.len();
        let planes = measure(block).map(|sorting| sorting.planes);
        let smaller = planes.is_some_and(|planes| self.pack_planes(block, &planes, out).is_ok());
        if !smaller || out.len() - begin > block.len() {
            out.truncate(begin);
            out.push(AS_IT_IS);
            out.extend_from_slice(block);
        }
    }

    fn pack_planes(&mut self, block: &[u8], planes: &[bool], out: &mut Vec<u8>) -> io::Result<()> {
        let (width, begin) = (planes.len(), out.len());
        out.push(u8::try_from(width).unwrap_or(AS_IT_IS));
        out.resize(begin + 1 + 4 * width, 0);
        let plane_len = block.len() / width;
        let (sorted, left) = block.split_at(plane_len * width);
        self.planes.resize(sorted.len(), 0);
        match width {
            1 => self.planes.copy_from_slice(sorted),
            2 => deinterleave::<2>(sorted, &mut self.planes),
            4 => deinterleave::<4>(sorted, &mut self.planes),
            _ => deinterleave::<8>(sorted, &mut self.planes),
        }
        for (number, worth_it) in planes.iter().enumerate() {
            let plane = &self.planes[number * plane_len..][..plane_len];
            let len = match worth_it {
                true => {
                    self.packed.clear();
                    self.compressor
                        .compress_to_buffer(plane, &mut self.packed)?;
                    out.extend_from_slice(&self.packed);
                    length(self.packed.len())
                }
                false => {
                    out.extend_from_slice(plane);
                    length(plane_len) | PLAIN_PLANE
                }
            };
            let at = begin + 1 + 4 * number;
            out[at..at + 4].copy_from_slice(&len.to_le_bytes());
        }
        out.extend_from_slice(left);
        Ok(())
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a plane is part of a block")
}

/// Unpacks blocks, one after another.
pub(super) struct Decoder {
    decompressor: Decompressor<'static>,
    planes: Vec<u8>,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            decompressor: Decompressor::new().expect("no dictionary is a good one"),
            planes: Vec::new(),
        }
    }

    /// Fills `block` with what was packed; `None` if it is not what it should be.
    pub(super) fn unpack(&mut self, packed: &[u8], block: &mut [u8]) -> Option<()> {
        let (width, rest) = packed.split_first()?;
        if *width == AS_IT_IS {
            return (rest.len() == block.len()).then(|| block.copy_from_slice(rest));
        }
        let width = usize::from(*width);
        if !WIDTHS.contains(&width) {
            return None;
        }
        let (lengths, rest) = rest.split_at_checked(4 * width)?;
        let plane_len = block.len() / width;
        let rest = self.read_planes(lengths, rest, plane_len)?;
        let (sorted, left) = block.split_at_mut(plane_len * width);
        match width {
            1 => interleave::<1>(&self.planes, plane_len, sorted),
            2 => interleave::<2>(&self.planes, plane_len, sorted),
            4 => interleave::<4>(&self.planes, plane_len, sorted),
            _ => interleave::<8>(&self.planes, plane_len, sorted),
        }
        (rest.len() == left.len()).then(|| left.copy_from_slice(rest))
    }

    /// Puts the planes one behind the other into `self.planes`, and returns what lies behind them.
    fn read_planes<'a>(
        &mut self,
        lengths: &[u8],
        mut rest: &'a [u8],
        plane_len: usize,
    ) -> Option<&'a [u8]> {
        self.planes.resize(lengths.len() / 4 * plane_len, 0);
        let (lengths, _) = lengths.as_chunks::<4>();
        for (number, length) in lengths.iter().enumerate() {
            let length = u32::from_le_bytes(*length);
            let bytes;
            (bytes, rest) = rest.split_at_checked((length & !PLAIN_PLANE) as usize)?;
            let plane = &mut self.planes[number * plane_len..][..plane_len];
            if length & PLAIN_PLANE != 0 {
                (bytes.len() == plane_len).then(|| plane.copy_from_slice(bytes))?;
            } else {
                let len = self.decompressor.decompress_to_buffer(bytes, plane);
                len.ok().filter(|len| *len == plane_len)?;
            }
        }
        Some(rest)
    }
}

/// Sorts bytes into `W` planes, one behind the other.
fn deinterleave<const W: usize>(bytes: &[u8], planes: &mut [u8]) {
    let (elements, _) = bytes.as_chunks::<W>();
    let mut planes: Vec<&mut [u8]> = planes.chunks_mut(elements.len().max(1)).collect();
    for (number, plane) in planes.iter_mut().enumerate() {
        for (byte, element) in plane.iter_mut().zip(elements) {
            *byte = element[number];
        }
    }
}

/// Puts the bytes of `W` planes of `len` bytes back where they belong.
fn interleave<const W: usize>(planes: &[u8], len: usize, out: &mut [u8]) {
    let planes: [&[u8]; W] = std::array::from_fn(|number| &planes[number * len..][..len]);
    let (elements, _) = out.as_chunks_mut::<W>();
    for (index, element) in elements.iter_mut().enumerate().take(len) {
        *element = std::array::from_fn(|number| planes[number][index]);
    }
}

#[cfg(test)]
mod tests {
    //! Blocks come back as they were, and what is no block does not.

    use super::*;
    use proptest::prelude::*;

    fn pack(block: &[u8]) -> Vec<u8> {
        let mut out = vec![9];
        Encoder::new().pack(block, &mut out);
        out.remove(0);
        out
    }

    fn unpack(packed: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut block = vec![7; len];
        Decoder::new().unpack(packed, &mut block)?;
        Some(block)
    }

    /// Numbers of a narrow range: their exponents are alike, their last digits are not.
    fn weights(count: u32) -> Vec<f32> {
        let noise = |i: u32| {
            f32::from_bits((i.wrapping_mul(2_654_435_761).wrapping_mul(i | 1) >> 9) | 0x3f80_0000)
        };
        let weight = |i| (noise(i) - 1.5) * 0.05;
        (0..count).map(weight).collect()
    }

    #[test]
    fn planes_of_weights_are_worth_it() {
        let f32s: Vec<u8> = weights(16_384)
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        let bf16s: Vec<u8> = weights(32_768)
            .iter()
            .flat_map(|w| w.to_le_bytes()[2..].to_vec())
            .collect();
        let zeros = vec![0; BLOCK_BYTES];
        for (block, width, percent) in [(f32s, 4, 90), (bf16s, 2, 75), (zeros, 1, 1)] {
            let packed = pack(&block);
            assert_eq!(usize::from(packed[0]), width);
            let most = block.len() * percent / 100;
            assert!(packed.len() < most, "{} of {most}", packed.len());
            assert_eq!(unpack(&packed, block.len()), Some(block));
        }
    }

    #[test]
    fn noise_is_kept_as_it_is() {
        let noise: Vec<u8> = blake3::Hasher::new().finalize_xof().take_bytes(BLOCK_BYTES);
        let packed = pack(&noise);
        assert_eq!((packed.len(), packed[0]), (MAX_BYTES, AS_IT_IS));
        assert_eq!(unpack(&packed, BLOCK_BYTES), Some(noise));
    }

    trait TakeBytes {
        fn take_bytes(self, len: usize) -> Vec<u8>;
    }

    impl TakeBytes for blake3::OutputReader {
        fn take_bytes(mut self, len: usize) -> Vec<u8> {
            let mut bytes = vec![0; len];
            self.fill(&mut bytes);
            bytes
        }
    }

    proptest! {
        #[test]
        fn any_block_comes_back(
            block in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..300),
                (prop::collection::vec(any::<u8>(), 1..9), 0..BLOCK_BYTES)
                    .prop_map(|(unit, len)| unit.into_iter().cycle().take(len).collect()),
            ],
        ) {
            let packed = pack(&block);
            prop_assert!(packed.len() <= block.len() + 1);
            prop_assert_eq!(unpack(&packed, block.len()), Some(block.clone()));
            prop_assert_eq!(unpack(&packed, block.len() + 1), None);
        }

        #[test]
        fn what_is_no_block_is_refused_or_unpacked_but_never_panics(
            packed in prop::collection::vec(any::<u8>(), 0..200),
            width in prop::sample::select(vec![0, 1, 2, 4, 8, 3]),
            len in 0..400_usize,
        ) {
            let mut bytes = vec![width];
            bytes.extend(packed);
            let _ = unpack(&bytes, len);
        }
    }
}
