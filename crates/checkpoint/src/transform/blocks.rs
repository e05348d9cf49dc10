//! Elements that share a scale with their neighbours.

use cairn_tensor::{DType, Overflow, cast, row_major_strides};
use std::ops::Range;

/// A box of elements in a grid of blocks.
pub(super) struct Blocks<'a> {
    /// The shape of the box.
    pub(super) extent: &'a [usize],
    /// Where in the grid the box begins, in elements.
    pub(super) first: &'a [usize],
    /// The shape of a block.
    pub(super) block: &'a [usize],
}

impl Blocks<'_> {
    /// The blocks that the box meets in a dim.
    pub(super) fn met(&self, dim: usize) -> Range<usize> {
        let end = self.first[dim] + self.extent[dim];
        self.first[dim] / self.block[dim]..end.div_ceil(self.block[dim])
    }

    /// Visits neighbouring elements of a block, as a range of the box's elements, with the number of the block among those it meets.
    fn each(&self, mut visit: impl FnMut(Range<usize>, usize)) {
        let ndim = self.extent.len();
        let Some(last) = ndim.checked_sub(1) else {
            return visit(0..1, 0);
        };
        if self.extent.contains(&0) {
            return;
        }
        let counts: Vec<usize> = (0..ndim).map(|dim| self.met(dim).len()).collect();
        let strides = row_major_strides(&counts);
        let (width, wide) = (self.extent[last], self.block[last]);
        let mut index = vec![0; last];
        for row in 0..self.extent[..last].iter().product() {
            let among =
                |dim: usize| (self.first[dim] + index[dim]) / self.block[dim] - self.met(dim).start;
            let outer: usize = (0..last).map(|dim| among(dim) * strides[dim]).sum();
            for (number, block) in self.met(last).enumerate() {
                let begin = (block * wide).max(self.first[last]) - self.first[last];
                let end = ((block + 1) * wide - self.first[last]).min(width);
                visit(row * width + begin..row * width + end, outer + number);
            }
            for dim in (0..last).rev() {
                index[dim] += 1;
                if index[dim] < self.extent[dim] {
                    break;
                }
                index[dim] = 0;
            }
        }
    }

    /// Multiplies every value by the scale of its block.
    pub(super) fn multiply(&self, values: &mut [f32], scales: &[f32]) {
        self.each(|range, block| {
            for value in &mut values[range] {
                *value *= scales[block];
            }
        });
    }

    /// Divides every value by the scale of its block.
    pub(super) fn divide(&self, values: &mut [f32], scales: &[f32]) {
        self.each(|range, block| {
            for value in &mut values[range] {
                *value /= scales[block];
            }
        });
    }

    /// The scale of each block for elements of `dtype`, or one if all of it is zero.
    pub(super) fn scales(&self, values: &[f32], dtype: DType) -> Vec<f32> {
        let counts = (0..self.extent.len()).map(|dim| self.met(dim).len());
        let mut scales = vec![0.0_f32; counts.product()];
        self.each(|range, block| {
            let magnitudes = values[range].iter().map(|value| value.abs());
            scales[block] = magnitudes.fold(scales[block], f32::max);
        });
        let largest = largest(dtype);
        for scale in &mut scales {
            *scale = match *scale {
                0.0 => 1.0,
                magnitude if dtype == DType::F4 => microscale(magnitude),
                magnitude => magnitude / largest,
            };
        }
        scales
    }
}

/// The scale that microscaling gives FP4 elements of which the greatest has this magnitude: a power of two that brings its leading
/// bit to that of 4, the greatest power of two among them.
fn microscale(magnitude: f32) -> f32 {
    /// The least scale, 2⁻¹²⁷, which `f32` has only without a leading bit.
    const LEAST: u32 = 1 << 22;
    /// Where the exponent lies.
    const EXPONENT: u32 = 23;
    let exponent = magnitude.to_bits() >> EXPONENT;
    match exponent.saturating_sub(2) {
        0 => f32::from_bits(LEAST),
        exponent => f32::from_bits(exponent << EXPONENT),
    }
}

/// The greatest finite value of a float type.
fn largest(dtype: DType) -> f32 {
    const ELEMENTS: usize = 4;
    let infinite = f32::INFINITY.to_le_bytes().repeat(ELEMENTS);
    let mut there = vec![0; dtype.bits() * ELEMENTS / 8];
    let mut back = vec![0; infinite.len()];
    let done = cast(DType::F32, dtype, &infinite, &mut there, Overflow::Saturate)
        .and_then(|()| cast(dtype, DType::F32, &there, &mut back, Overflow::Native));
    match done {
        Ok(()) => floats(&back)[0],
        Err(_) => 1.0,
    }
}

/// The floats that bytes are.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    let (chunks, _) = bytes.as_chunks();
    chunks
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

/// The bytes that floats are.
pub(super) fn bytes(floats: &[f32]) -> Vec<u8> {
    floats
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    //! Values meet the scale of their block wherever the box begins.

    use super::*;

    #[test]
    fn a_box_inside_a_grid_meets_the_right_scales() {
        let blocks = Blocks {
            extent: &[3, 5],
            first: &[1, 3],
            block: &[2, 4],
        };
        assert_eq!((blocks.met(0), blocks.met(1)), (0..2, 0..2));
        let mut values = vec![1.0; 15];
        blocks.multiply(&mut values, &[1.0, 2.0, 3.0, 4.0]);
        let expected = [
            1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 4.0, 4.0, 4.0, 4.0, 3.0, 4.0, 4.0, 4.0, 4.0,
        ];
        assert_eq!(values, expected);
        let scales = [1.0, 2.0, 3.0, 4.0].map(|greatest: f32| greatest / 448.0);
        assert_eq!(blocks.scales(&values, DType::F8E4M3), scales);
    }

    #[test]
    fn a_block_of_zeros_has_the_scale_one() {
        let blocks = Blocks {
            extent: &[4],
            first: &[0],
            block: &[2],
        };
        let values = [0.0, -0.0, -896.0, 3.0];
        assert_eq!(blocks.scales(&values, DType::F8E4M3), [1.0, 2.0]);
        assert_eq!(blocks.scales(&values, DType::F4), [1.0, 128.0]);
    }

    #[test]
    fn a_microscale_is_a_power_of_two_that_a_byte_holds() {
        for (magnitude, scale) in [
            (4.0, 1.0),
            (7.9, 1.0),
            (8.0, 2.0),
            (3.9, 0.5),
            (f32::MAX, 2_f32.powi(125)),
            (f32::MIN_POSITIVE, 2_f32.powi(-127)),
            (f32::from_bits(1), 2_f32.powi(-127)),
        ] {
            assert_eq!(microscale(magnitude), scale, "{magnitude:e}");
        }
    }

    #[test]
    fn a_scalar_is_a_block() {
        let blocks = Blocks {
            extent: &[],
            first: &[],
            block: &[],
        };
        let mut values = [3.0];
        blocks.multiply(&mut values, &[2.0]);
        assert_eq!(values, [6.0]);
    }

    #[test]
    fn the_largest_values_are_those_of_the_types() {
        assert_eq!(largest(DType::F8E4M3), 448.0);
        assert_eq!(largest(DType::F8E5M2), 57344.0);
        assert_eq!(largest(DType::F4), 6.0);
        assert_eq!(largest(DType::Bf16), f32::from_bits(0x7f7f_0000));
    }
}
