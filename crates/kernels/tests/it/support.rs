//! Random inputs, finite differences, and the comparison of thread counts.

use cairn_kernels::random::Stream;
use cairn_kernels::{Pool, Real};

/// Normal numbers; other seeds give others.
pub(crate) fn random<R: Real>(seed: u64, len: usize) -> Vec<R> {
    let mut numbers = vec![R::ZERO; len];
    Stream::new(seed).fill_normal(&Pool::new(1), 0, &mut numbers);
    numbers
}

/// The sum of products: a loss whose gradient with respect to `x` is `weights`.
pub(crate) fn inner(weights: &[f64], x: &[f64]) -> f64 {
    assert_eq!(weights.len(), x.len());
    weights.iter().zip(x).map(|(weight, x)| weight * x).sum()
}

/// Compares `gradients` of `loss` with respect to each input with central differences.
pub(crate) fn check_gradients<const N: usize>(
    inputs: [&[f64]; N],
    gradients: [&[f64]; N],
    loss: impl Fn([&[f64]; N]) -> f64,
) {
    const STEP: f64 = 1e-5;
    for index in 0..N {
        assert_eq!(inputs[index].len(), gradients[index].len());
        for (place, &gradient) in gradients[index].iter().enumerate() {
            let at = |difference: f64| {
                let mut changed = inputs[index].to_vec();
                changed[place] += difference;
                let mut inputs = inputs;
                inputs[index] = &changed;
                loss(inputs)
            };
            let slope = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let error = (slope - gradient).abs() / slope.abs().max(gradient.abs()).max(1.0);
            assert!(
                error <= 1e-6,
                "input {index} at {place}: {gradient} should be {slope}"
            );
        }
    }
}

/// Runs `work` with one, two, three and seven threads, and compares all bits.
pub(crate) fn same_on_all_threads(work: impl Fn(&Pool) -> Vec<Vec<f32>>) {
    let bits = |threads| {
        let all = work(&Pool::new(threads));
        let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        all.into_iter().map(bits).collect::<Vec<_>>()
    };
    let expected = bits(1);
    for threads in [2, 3, 7] {
        // Not `assert_eq`: nobody reads a million numbers.
        assert!(bits(threads) == expected, "{threads} threads differ");
    }
}

/// Whether all pairs differ by at most `tolerance`, relative to numbers above one.
pub(crate) fn close<R: Real>(x: &[R], y: &[R], tolerance: f64) -> bool {
    let near = |(x, y): (&R, &R)| {
        let (x, y) = (x.to_f64(), y.to_f64());
        (x - y).abs() <= tolerance * x.abs().max(y.abs()).max(1.0)
    };
    x.len() == y.len() && x.iter().zip(y).all(near)
}
