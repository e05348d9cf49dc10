//! What collectives should give, worked out plainly.

use cairn_tensor::ReduceOp;

/// Numbers of all sizes, the same for the same seed and rank.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: usize, rank: usize) -> Self {
        Self((seed as u64 * 1_000_003 + rank as u64) * 2 + 1)
    }
}

impl Iterator for Numbers {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mantissa = (self.0 >> 40) as f32 / (1_u32 << 24) as f32 - 0.5;
        Some(mantissa * 10_f32.powi((self.0 >> 33) as i32 % 7 - 3))
    }
}

/// Terms combined one after another.
pub(super) fn combine(op: ReduceOp, terms: impl Iterator<Item = f32>) -> f32 {
    let terms: Vec<f32> = terms.collect();
    let sum = || terms.iter().skip(1).fold(terms[0], |sum, term| sum + term);
    match op {
        ReduceOp::Avg => sum() / terms.len() as f32,
        ReduceOp::Max => terms.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        _ => sum(),
    }
}

pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    let chunks = bytes.as_chunks().0.iter();
    chunks.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

pub(super) fn of_floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
