//! Rotary embeddings against what Hugging Face's Llama computes.

use crate::support::{check_gradients, close, inner, random, same_on_all_threads};
use cairn_kernels::Pool;
use cairn_kernels::rotary::{Rotary, Scaling};

/// The scaling of Llama 3.1.
const LLAMA3: Scaling = Scaling::Llama3 {
    factor: 8.0,
    low_frequency_factor: 1.0,
    high_frequency_factor: 4.0,
    original_length: 8192.0,
};

#[test]
fn frequencies_are_those_that_transformers_computes() {
    let expected = [
        0x3F80_0000,
        0x3E46_93B0,
        0x3D1A_08C8,
        0x3BEE_F74F,
        0x3A09_95D2,
        0x380F_C8F8,
        0x36DF_10C4,
        0x35AD_07A7_u32,
    ];
    let rotary = Rotary::new(16, 500_000.0, LLAMA3);
    for (frequency, expected) in rotary
        .frequencies()
        .iter()
        .zip(expected.map(f32::from_bits))
    {
        // The power is rounded once here and several times there.
        let error = (frequency - expected).abs() / expected;
        assert!(error <= 3e-7, "{frequency} should be {expected}");
    }
}

#[test]
fn rotated_heads_are_those_of_transformers() {
    let mut x: Vec<f32> = (1..=16_u8).map(|x| f32::from(x) / 4.0).collect();
    let expected = [
        0xBFDC_252B,
        0x400D_CF53,
        0x3F80_4D56,
        0xC000_78A6,
        0xBF0B_F852,
        0x3FB0_8845,
        0x3FDC_CDD9,
        0x3FFF_56F9,
        0x3FBC_6CE1,
        0x3FA1_6B12,
        0x402A_C6CF,
        0x401C_61A1,
        0x405C_16FE,
        0x4063_28A2,
        0x4070_BD3F,
        0x4080_1518_u32,
    ];
    let pool = Pool::new(1);
    let angles = Rotary::new(16, 500_000.0, LLAMA3).angles(&pool, &[1000]);
    angles.rotate(&pool, 1, &mut x);
    // An angle of 200 is known to 1e-5 only.
    assert!(close(&x, &expected.map(f32::from_bits), 5e-5), "{x:?}");
}

#[test]
fn linear_scaling_divides_positions() {
    let pool = Pool::new(1);
    let scaled = Rotary::new(8, 1e4, Scaling::Linear { factor: 4.0 });
    let angles = scaled.angles::<f64>(&pool, &[8, 4]);
    assert_eq!(
        angles,
        Rotary::new(8, 1e4, Scaling::None).angles(&pool, &[2, 1])
    );
}

#[test]
fn turning_back_is_the_inverse_and_the_backward() {
    let pool = Pool::new(2);
    for (heads, dim, positions) in [
        (1, 2, vec![0]),
        (3, 6, vec![5, 0, 9]),
        (2, 0, vec![1]),
        (2, 4, vec![]),
    ] {
        let angles = Rotary::new(dim, 1e4, Scaling::None).angles::<f64>(&pool, &positions);
        let x = random(1, positions.len() * heads * dim);
        let slope = random(2, x.len());
        let mut gradient = slope.clone();
        angles.rotate_back(&pool, heads, &mut gradient);
        let forward = |x: &[f64]| {
            let mut y = x.to_vec();
            angles.rotate(&pool, heads, &mut y);
            y
        };
        check_gradients([&x], [&gradient], |[x]| inner(&slope, &forward(x)));
        let mut again = forward(&x);
        angles.rotate_back(&pool, heads, &mut again);
        assert!(close(&again, &x, 1e-14));
    }
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let positions: Vec<u32> = (0..700).map(|token| token % 300).collect();
    let x = random::<f32>(1, 700 * 3 * 32);
    same_on_all_threads(|pool| {
        let mut x = x.clone();
        Rotary::new(32, 1e4, Scaling::None)
            .angles(pool, &positions)
            .rotate(pool, 3, &mut x);
        vec![x]
    });
}
