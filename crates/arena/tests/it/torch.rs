//! Steps as PyTorch makes them: the numbers are from `torch.optim` after `clip_grad_norm_(1.5)`, in `f32` on a CPU.

use crate::common::options;
use crate::steps::groups;
use cairn_arena::{Arena, Bucket, Hyper, Init, Optimizer, Options, Parameter, Stage};
use cairn_tensor::DType;

/// The norm of the gradients of each step, and the weights after it.
type Steps = [(f64, [f32; 4]); 5];

/// `AdamW(lr=0.05, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)`.
const ADAMW: Steps = [
    (4.473254, [0.94500005, 1.045, 1.0449992, 0.945]),
    (2.2449946, [0.89651763, 1.0897725, 1.0897709, 0.8902776]),
    (1.3666667, [0.84960556, 1.1234715, 1.1234692, 0.8358317]),
    (1.4696941, [0.80149114, 1.1184846, 1.1184824, 0.7822975]),
    (2.2113352, [0.751817, 1.0945389, 1.0945369, 0.7313703]),
];

/// `SGD(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1)`.
const SGD: Steps = [
    (4.473254, [0.9873144, 1.054212, 0.9905637, 0.86307603]),
    (2.2449946, [0.95983195, 1.130783, 0.97719395, 0.66955495]),
    (1.3666667, [0.9079356, 1.1636314, 0.96030533, 0.42637613]),
    (1.4696941, [0.8324228, 1.0922291, 0.940285, 0.17147763]),
    (2.2113352, [0.7464186, 0.93894583, 0.91757154, -0.06419392]),
];

const HYPER: Hyper = Hyper {
    learning_rate: 0.05,
    weight_decay: 0.1,
    clip: Some(1.5),
    skip: false,
};

fn gradient(step: f32) -> [f32; 4] {
    [
        0.1 * (step + 1.0),
        step - 2.0,
        1e-3 * (step - 2.0),
        4.0 / (step + 1.0),
    ]
}

fn assert_steps(optimizer: Optimizer, expected: Steps) {
    let ones = Parameter {
        init: Init::Ones,
        ..crate::common::parameter("weight", &[4], None)
    };
    let options = Options {
        optimizer,
        ..options(Stage::Nothing, DType::F32)
    };
    let buckets = vec![Bucket::new(vec![ones], 0, 1)];
    let mut arena = Arena::new(buckets, groups(None), options).unwrap();
    for (step, (norm, weights)) in expected.into_iter().enumerate() {
        let (_, gradients) = arena.weights_and_gradients(0).unwrap();
        gradients.copy_from_slice(&gradient(step as f32));
        arena.ready(0, true).unwrap();
        let report = arena.step(&HYPER).unwrap();
        assert!((report.gradient_norm / norm - 1.0).abs() < 1e-6);
        assert_eq!(report.clipped, norm > 1.5);
        for (actual, expected) in arena.weights(0).unwrap().iter().zip(weights) {
            assert!(
                (actual - expected).abs() < 2e-7,
                "step {step}: {actual}, not {expected}"
            );
        }
    }
}

#[test]
fn adamw_steps_as_torch_does() {
    let optimizer = Optimizer::AdamW {
        betas: [0.9, 0.95],
        epsilon: 1e-8,
    };
    assert_steps(optimizer, ADAMW);
}

#[test]
fn sgd_steps_as_torch_does() {
    let optimizer = Optimizer::Sgd {
        momentum: 0.9,
        nesterov: true,
    };
    assert_steps(optimizer, SGD);
}
