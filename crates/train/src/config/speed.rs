//! How much arithmetic a step is, and how much the machine can do.

use super::Config;
use cairn_kernels::Pool;
use cairn_kernels::gemm::{Matrix, Product, Target, Write, matmul};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// The additions and multiplications of a step, forward and backward, on all ranks together; what is computed again is not counted.
pub fn step_flops(config: &Config) -> f64 {
    let (length, tokens) = (config.data.length, step_tokens(config));
    let blocks = config.blocks();
    let forward = blocks
        .iter()
        .map(|block| block.forward_flops(tokens, length));
    // A backward is two products for each of the forward's.
    3.0 * forward.sum::<f64>()
}

/// The tokens of a step, on all ranks together; the most, if batches go by tokens.
pub fn step_tokens(config: &Config) -> usize {
    let whole = config.settings.batch.saturating_mul(config.data.length);
    config.settings.tokens.unwrap_or(whole)
}

/// The additions and multiplications that this machine does in a second, in products of matrices that suit it; takes about a tenth of a second.
pub fn peak_flops() -> f64 {
    const SIZE: usize = 768;
    const LONG_ENOUGH: Duration = Duration::from_millis(100);
    let pool = Pool::new(available_parallelism().map_or(1, usize::from));
    let factor = vec![1.0_f32; SIZE * SIZE];
    let mut result = vec![0.0_f32; SIZE * SIZE];
    let size = Product {
        rows: SIZE,
        columns: SIZE,
        inner: SIZE,
    };
    let mut multiply = || {
        let begun = Instant::now();
        let target = Target {
            elements: &mut result,
            row_stride: SIZE,
            write: Write::Replace,
        };
        let matrix = Matrix::new(&factor, SIZE);
        matmul(&pool, size, matrix, matrix, target);
        begun.elapsed()
    };
    let begun = Instant::now();
    // The first finds cold caches and threads that sleep.
    multiply();
    let mut best = multiply();
    while begun.elapsed() < LONG_ENOUGH {
        best = best.min(multiply());
    }
    2.0 * (SIZE as f64).powi(3) / best.as_secs_f64()
}
