//! Dropout of rows, the same on every layout.

use crate::block::Pass;
use cairn_kernels::random::Stream;
use cairn_kernels::{Real, dropout as kernel};

/// What the random numbers are for: those of dropout never meet those of first weights or the order of data.
const PURPOSE: u64 = 0x64_72_6f_70;

/// Elements dropped at random in training. Which ones depends on the seed, the step, the number of the sequence and the place in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// The share of elements that is dropped.
    pub rate: f64,
    /// The layer.
    pub layer: u64,
    /// Which of the layer's.
    pub site: u64,
}

impl Dropout {
    /// Drops elements of this rank's rows; of their gradient, it is the backward.
    pub fn apply<R: Real>(&self, pass: &Pass<'_>, rows: &mut [R], width: usize) {
        if !pass.training || self.rate == 0.0 {
            return;
        }
        let held = pass.local_rows();
        let length = pass.batch.length;
        let mut rest = rows;
        for (number, sample) in pass.batch.samples.iter().enumerate() {
            let sequence = number * length;
            let start = held.start.clamp(sequence, sequence + length);
            let end = held.end.clamp(sequence, sequence + length);
            let rows;
            (rows, rest) = rest.split_at_mut((end - start) * width);
            let stream = Stream::new(pass.seed)
                .with(PURPOSE)
                .with(pass.step)
                .with(*sample);
            let dropout = kernel::Dropout {
                stream: stream.with(self.layer).with(self.site),
                rate: self.rate,
            };
            dropout.apply(pass.pool, ((start - sequence) * width) as u64, rows);
        }
    }
}
