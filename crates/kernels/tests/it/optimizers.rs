//! Steps against three steps of torch on the same numbers.

use crate::support::{random, same_on_all_threads};
use cairn_kernels::Pool;
use cairn_kernels::adamw::{AdamW, AdamWState};
use cairn_kernels::sgd::Sgd;

const WEIGHTS: [u32; 6] = [
    0x3FC5_3F5C,
    0xBE96_3C50,
    0xC00B_7149,
    0x3F11_84B6,
    0xBF8A_D1A1,
    0xBFB3_052D,
];
const GRADIENTS: [[u32; 6]; 3] = [
    [
        0x3ECE_837A,
        0x3F56_88E5,
        0xBF38_2144,
        0xBECE_830B,
        0xBF18_BD18,
        0x3E3A_67C6,
    ],
    [
        0xBF5B_4F07,
        0x3F8C_E099,
        0xBF89_1CAB,
        0x3DFB_4ACA,
        0xBF10_FA2F,
        0x3EBF_08E2,
    ],
    [
        0xBF64_59CE,
        0xBFC1_2A71,
        0x3EBD_A439,
        0x3FBA_6EAD,
        0x3F70_9762,
        0x3F46_5C7E,
    ],
];

/// Compares numbers that are sums of terms around one: torch fuses some of the roundings.
fn assert_near(x: &[f32], expected: [u32; 6]) {
    for (x, expected) in x.iter().zip(expected.map(f32::from_bits)) {
        let error = (x - expected).abs() / expected.abs().max(0.1);
        assert!(error <= 2e-7, "{x} should be {expected}");
    }
}

fn adamw(step: u64) -> AdamW {
    AdamW {
        learning_rate: 3e-3,
        betas: [0.9, 0.95],
        epsilon: 1e-8,
        weight_decay: 0.1,
        step,
        gradient_scale: 1.0,
    }
}

#[test]
fn three_steps_of_adamw_are_those_of_torch() {
    let pool = Pool::new(1);
    let mut master = WEIGHTS.map(f32::from_bits);
    let (mut exp_avg, mut exp_avg_sq, mut rounded) = ([0.0; 6], [0.0; 6], [0; 6]);
    for (step, gradient) in (1..).zip(GRADIENTS) {
        let state = AdamWState {
            master: &mut master,
            exp_avg: &mut exp_avg,
            exp_avg_sq: &mut exp_avg_sq,
        };
        adamw(step).update(
            &pool,
            &gradient.map(f32::from_bits),
            state,
            Some(&mut rounded),
        );
    }
    assert_near(
        &master,
        [
            0x3FC5_1572,
            0xBE99_3D29,
            0xC00A_D3E3,
            0x3F12_1764,
            0xBF89_EA96,
            0xBFB3_F453,
        ],
    );
    assert_near(
        &exp_avg,
        [
            0xBE08_D615,
            0x3C83_4438,
            0xBDF0_E69F,
            0x3DFD_FF88,
            0xBBAE_29E0,
            0x3E00_D461,
        ],
    );
    assert_near(
        &exp_avg_sq,
        [
            0x3DA7_E733,
            0x3E4F_F93E,
            0x3DAD_7B37,
            0x3DE9_BB11,
            0x3D9A_8A7A,
            0x3D1C_2BA1,
        ],
    );
    assert_eq!(rounded, [0x3FC5, 0xBE99, 0xC00B, 0x3F12, 0xBF8A, 0xBFB4]);
}

#[test]
fn three_steps_of_descent_are_those_of_torch() {
    let expected = [
        (
            false,
            [
                0x3FC6_F687,
                0xBEA4_C1C7,
                0xC009_0D32,
                0x3F0F_E8C0,
                0xBF88_7F57,
                0xBFB5_7349,
            ],
            [
                0xBFA5_B443,
                0x3E1B_96A8,
                0xBF9E_148C,
                0x3FA0_BBB6,
                0xBDA8_93C0,
                0x3F9C_2CC8,
            ],
        ),
        (
            true,
            [
                0x3FC8_7451,
                0xBEA5_7456,
                0xC008_572B,
                0x3F0D_0401,
                0xBF88_672D,
                0xBFB6_DB11,
            ],
            [
                0xBFA5_B401,
                0x3E1B_5948,
                0xBF9E_0D64,
                0x3FA0_BD71,
                0xBDA8_44F8,
                0x3F9C_2AD5,
            ],
        ),
    ];
    for (nesterov, weights, momentum) in expected {
        let sgd = Sgd {
            learning_rate: 1e-2,
            momentum: 0.9,
            nesterov,
            weight_decay: 0.01,
            gradient_scale: 1.0,
        };
        let (mut master, mut buffer) = (WEIGHTS.map(f32::from_bits), [0.0; 6]);
        for gradient in GRADIENTS {
            sgd.update(
                &Pool::new(1),
                &gradient.map(f32::from_bits),
                &mut master,
                &mut buffer,
                None,
            );
        }
        assert_near(&master, weights);
        assert_near(&buffer, momentum);
    }
}

#[test]
fn a_gradient_that_is_scaled_is_as_good_as_one_that_was() {
    let gradient = random::<f32>(1, 50);
    let run = |gradient: &[f32], gradient_scale: f64| {
        let mut state = [random::<f32>(2, 50), vec![0.1; 50], vec![0.1; 50]];
        let [master, exp_avg, exp_avg_sq] = &mut state;
        let rule = AdamW {
            gradient_scale,
            ..adamw(7)
        };
        let memory = AdamWState {
            master,
            exp_avg,
            exp_avg_sq,
        };
        rule.update(&Pool::new(1), gradient, memory, None);
        state
    };
    let halved: Vec<f32> = gradient.iter().map(|x| x * 0.5).collect();
    assert_eq!(run(&gradient, 0.5), run(&halved, 1.0));
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let gradient = random::<f32>(1, 100_001);
    let start = random::<f32>(2, 100_001);
    same_on_all_threads(|pool| {
        let mut state = [start.clone(), vec![0.1; 100_001], vec![0.1; 100_001]];
        let [master, exp_avg, exp_avg_sq] = &mut state;
        let memory = AdamWState {
            master,
            exp_avg,
            exp_avg_sq,
        };
        adamw(3).update(pool, &gradient, memory, None);
        state.into()
    });
}
