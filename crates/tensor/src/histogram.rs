//! How often which values occur, without knowing their range beforehand.

use crate::blocks::{self, BLOCK, Rounding, block_bytes};
use crate::summary::real;
use crate::{DType, Error};
use std::collections::BTreeMap;

/// The bits of an `f32` below those that name a bucket.
const DROPPED_BITS: u32 = 16;
/// As many buckets as there are names.
const BUCKETS: usize = 1 << 16;
/// Fewer elements than this are counted one by one, without an array of all buckets.
const FEW_BYTES: usize = 4096;

/// Counts of finite elements in buckets that are one 128th of their octave wide.
///
/// A bucket is named by the first 16 bits of its values as `f32`, which are a `bf16`: counting is a shift and an addition, any
/// two histograms can be added, and one of all magnitudes is small, for only buckets that were met are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    counts: BTreeMap<u16, u64>,
}

impl Histogram {
    /// Counts the elements in `bytes`.
    ///
    /// # Errors
    /// If the last element is cut.
    pub fn of(dtype: DType, bytes: &[u8]) -> Result<Self, Error> {
        let dtype = real(dtype);
        let len = bytes.len();
        dtype
            .elements_in(len)
            .ok_or(Error::PartialElement { dtype, len })?;
        let mut histogram = Self::default();
        let mut counts = vec![0_u64; if len < FEW_BYTES { 0 } else { BUCKETS }];
        let mut values = [0.0; BLOCK];
        for source in bytes.chunks(block_bytes(dtype)) {
            let values = &mut values[..source.len() * 8 / dtype.bits()];
            blocks::to_f32(dtype, source, values, Rounding::Nearest);
            for value in values {
                let bucket = bucket(*value);
                match counts.get_mut(usize::from(bucket)) {
                    Some(count) => *count += 1,
                    None => *histogram.counts.entry(bucket).or_default() += 1,
                }
            }
        }
        let met = (0..=u16::MAX).zip(counts).filter(|(_, count)| *count > 0);
        histogram.counts.extend(met);
        histogram
            .counts
            .retain(|bucket, _| edge(*bucket).is_finite());
        Ok(histogram)
    }

    /// Adds the elements of another histogram.
    pub fn append(&mut self, other: &Self) {
        for (bucket, count) in &other.counts {
            *self.counts.entry(*bucket).or_default() += count;
        }
    }

    /// How many elements lie in each of `count` equal stretches from `low` to `high`.
    ///
    /// A bucket that lies in two of them is shared out as if its elements were spread evenly.
    pub fn bins(&self, low: f64, high: f64, count: usize) -> Vec<f64> {
        let mut bins = vec![0.0; count];
        let width = (high - low) / count as f64;
        // No stretch, or one too long to be divided.
        if count == 0 || !width.is_normal() || width < 0.0 {
            if let Some(first) = bins.first_mut() {
                *first = self.counts.values().sum::<u64>() as f64;
            }
            return bins;
        }
        for (bucket, elements) in &self.counts {
            let (from, to) = bounds(*bucket);
            let (from, to) = (from.clamp(low, high), to.clamp(low, high));
            spread(
                &mut bins,
                (from - low) / width,
                (to - low) / width,
                *elements,
            );
        }
        bins
    }
}

/// Shares `elements` out over the bins from `from` to `to`, in units of bins.
fn spread(bins: &mut [f64], from: f64, to: f64, elements: u64) {
    let last = bins.len() - 1;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the number of bins"
    )]
    let place = |at: f64| (at as usize).min(last);
    let (first, end) = (place(from), place(to));
    if first == end || to <= from {
        bins[first] += elements as f64;
        return;
    }
    for (index, bin) in bins.iter_mut().enumerate().take(end + 1).skip(first) {
        let overlap = to.min(index as f64 + 1.0) - from.max(index as f64);
        *bin += elements as f64 * overlap.max(0.0) / (to - from);
    }
}

/// The bucket of a value.
fn bucket(value: f32) -> u16 {
    let [_, _, low, high] = value.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// The value of a bucket that is nearest to zero.
fn edge(bucket: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bucket) << DROPPED_BITS))
}

/// The least and the greatest value of a bucket.
fn bounds(bucket: u16) -> (f64, f64) {
    let far = f32::from_bits((u32::from(bucket) << DROPPED_BITS) | ((1 << DROPPED_BITS) - 1));
    let (near, far) = (edge(bucket), f64::from(far));
    (near.min(far), near.max(far))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[f32]) -> Histogram {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Histogram::of(DType::F32, &bytes).unwrap()
    }

    proptest! {
        #[test]
        fn every_finite_element_lies_in_a_bin_near_its_own(
            values in proptest::collection::vec(-4.0f32..4.0, 1..3000), count in 1usize..20,
        ) {
            let bins = of(&values).bins(-4.0, 4.0, count);
            let sum: f64 = bins.iter().sum();
            prop_assert!((sum - values.len() as f64).abs() < 1e-6);
            // What lies below any edge may be off by what shares a bucket with the edge: those within 1/128 of it.
            let width = 8.0 / count as f64;
            let mut below = 0.0;
            for (index, bin) in bins.iter().enumerate() {
                below += bin;
                let edge = -4.0 + width * (index + 1) as f64;
                let slack = edge.abs() / 64.0 + 1e-6;
                let sure = values.iter().filter(|value| f64::from(**value) < edge - slack).count();
                let perhaps = values.iter().filter(|value| f64::from(**value) < edge + slack).count();
                prop_assert!(below >= sure as f64 - 1e-6 && below <= perhaps as f64 + 1e-6);
            }
        }
    }

    #[test]
    fn nan_and_infinity_are_left_out_and_equal_values_are_one_bin() {
        let mut histogram = of(&[f32::NAN, f32::INFINITY, -1.0]);
        histogram.append(&of(&[2.0, f32::NEG_INFINITY]));
        assert_eq!(histogram.bins(-1.0, 2.0, 3), [1.0, 0.0, 1.0]);
        assert_eq!(of(&[5.0; 7]).bins(5.0, 5.0, 3), [7.0, 0.0, 0.0]);
        assert_eq!(of(&[]).bins(0.0, 1.0, 2), [0.0, 0.0]);
        assert!(of(&[1.0]).bins(0.0, 1.0, 0).is_empty());
    }

    #[test]
    fn numbers_beyond_f32_do_not_disturb_the_others() {
        let bytes: Vec<u8> = [1e300_f64, 1.0]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let histogram = Histogram::of(DType::F64, &bytes).unwrap();
        assert_eq!(histogram.bins(0.0, 2.0, 2).iter().sum::<f64>(), 1.0);
    }
}
