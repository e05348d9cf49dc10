//! What a step does with gradients: ties, clips, refuses.

use crate::common::{HYPER, Layout, TIED, Values, on, options, parameter};
use crate::layouts::{DTYPES, STAGES};
use cairn_arena::{Arena, Bucket, Error, Groups, Hyper, Optimizer, Options, Stage, Tied};
use cairn_collectives::{Communicator, threads};
use cairn_kernels::Pool;
use cairn_tensor::DType;
use std::sync::Arc;

/// A group of one.
pub(crate) fn alone() -> Arc<dyn Communicator> {
    threads::members(1, &threads::Options::default()).remove(0)
}

pub(crate) fn groups(tied: Option<Tied>) -> Groups {
    let [world, dp, tp] = [(); 3].map(|()| alone());
    Groups {
        world,
        dp,
        tp,
        tied,
    }
}

/// One rank with blocks that each have one parameter of the given name and length.
pub(crate) fn arena(blocks: &[(&str, usize)], options: Options) -> Result<Arena, Error> {
    let bucket =
        |(name, len): &(&str, usize)| Bucket::new(vec![parameter(name, &[*len], None)], 0, 1);
    Arena::new(blocks.iter().map(bucket).collect(), groups(None), options)
}

/// Gives every element of bucket `bucket` this gradient.
fn backward(arena: &mut Arena, bucket: usize, gradient: &[f32]) {
    let (_, gradients) = arena.weights_and_gradients(bucket).unwrap();
    gradients.copy_from_slice(gradient);
    arena.ready(bucket, true).unwrap();
}

fn descent(clip: Option<f64>) -> (Optimizer, Hyper) {
    let optimizer = Optimizer::Sgd {
        momentum: 0.0,
        nesterov: false,
    };
    let hyper = Hyper {
        learning_rate: 1.0,
        weight_decay: 0.0,
        clip,
        skip: false,
    };
    (optimizer, hyper)
}

#[test]
fn large_gradients_are_scaled_as_clip_grad_norm_scales_them() {
    for (clip, scale) in [
        (None, 1.0),
        (Some(10.0), 1.0),
        (Some(1.0), 1.0 / (5.0 + 1e-6)),
    ] {
        let (optimizer, hyper) = descent(clip);
        let options = Options {
            optimizer,
            ..options(Stage::Nothing, DType::F32)
        };
        let mut arena = arena(&[("a", 1), ("b", 2)], options).unwrap();
        let before = arena.weights(1).unwrap().to_vec();
        backward(&mut arena, 0, &[3.0]);
        backward(&mut arena, 1, &[0.0, 4.0]);
        let report = arena.step(&hyper).unwrap();
        assert_eq!((report.gradient_norm, report.clipped), (5.0, scale < 1.0));
        let after = arena.weights(1).unwrap();
        assert_eq!(after[0], before[0]);
        assert_eq!(after[1], before[1] - 4.0 * scale as f32);
    }
}

#[test]
fn blocks_that_share_a_parameter_stay_equal_and_count_once() {
    let (optimizer, hyper) = descent(None);
    let options = Options {
        optimizer,
        ..options(Stage::Nothing, DType::F32)
    };
    let mut arena = arena(&[("shared", 2), ("other", 1), ("shared", 2)], options).unwrap();
    let before = arena.weights(0).unwrap().to_vec();
    assert_eq!(arena.weights(2).unwrap(), before);
    backward(&mut arena, 0, &[1.0, 0.0]);
    backward(&mut arena, 1, &[0.0]);
    backward(&mut arena, 2, &[2.0, 4.0]);
    let report = arena.step(&hyper).unwrap();
    assert_eq!(report.gradient_norm, 5.0, "of [1 + 2, 0 + 4]");
    for bucket in [0, 2] {
        let after = arena.weights(bucket).unwrap();
        assert_eq!(after, [before[0] - 3.0, before[1] - 4.0]);
    }
}

#[test]
fn a_gradient_that_is_no_number_anywhere_changes_nothing_anywhere() {
    for (stage, dtype) in STAGES
        .into_iter()
        .flat_map(|stage| DTYPES.map(|dtype| (stage, dtype)))
    {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let layout = Layout::new("dp=2,pp=2,tp=2", stage, dtype);
            let ranks = on(layout, |rank| {
                rank.train(0..2)?;
                let before = rank.values()?;
                rank.backward(2)?;
                let is_wrong = rank.world.rank() == 5;
                let (_, gradients) = rank.arena.weights_and_gradients(0)?;
                if is_wrong {
                    gradients[0] = wrong;
                }
                for bucket in 0..rank.arena.len() {
                    rank.arena.ready(bucket, true)?;
                }
                let report = rank.arena.step(&HYPER)?;
                assert!(report.skipped && !report.clipped && !report.gradient_norm.is_finite());
                assert_eq!(rank.arena.updates(), 2);
                assert_eq!(rank.values()?, before);
                rank.train(2..3)?;
                rank.values()
            });
            let untroubled = on(layout, |rank| {
                rank.train(0..3)?;
                rank.values()
            });
            assert_eq!(ranks, untroubled, "moments are as they were, too");
        }
    }
}

#[test]
fn a_step_without_gradients_has_a_norm_of_zero() {
    let mut arena = arena(&[("a", 3)], options(Stage::Nothing, DType::F32)).unwrap();
    let report = arena.step(&HYPER).unwrap();
    assert_eq!((report.gradient_norm, report.skipped), (0.0, false));
}

#[test]
fn a_step_in_the_middle_of_a_backward_is_refused() {
    let mut arena = arena(&[("a", 3), ("b", 3)], options(Stage::Nothing, DType::F32)).unwrap();
    backward(&mut arena, 0, &[0.0; 3]);
    arena.weights_and_gradients(1).unwrap();
    let error = arena.step(&HYPER).unwrap_err();
    assert!(matches!(error, Error::NotReady { bucket: 1 }));
    assert!(error.hint().unwrap().contains("ready"));
}

#[test]
fn what_cannot_be_is_refused() {
    let wrong = arena(&[("a", 1)], options(Stage::Nothing, DType::F16));
    assert!(matches!(wrong, Err(Error::Type { dtype: DType::F16 })));
    let wrong = arena(&[("a", 1), ("a", 2)], options(Stage::Nothing, DType::F32));
    assert!(matches!(wrong, Err(Error::Tied { name, .. }) if name == "a"));
    let tied = Tied {
        group: alone(),
        names: vec![TIED.into()],
    };
    let wrong = Arena::new(
        Vec::new(),
        groups(Some(tied)),
        options(Stage::Nothing, DType::F32),
    );
    assert!(matches!(wrong, Err(Error::Tied { name, .. }) if name == TIED));
    assert!(matches!(Stage::try_from(4), Err(Error::Stage { stage: 4 })));
    assert_eq!(Stage::try_from(3).unwrap(), Stage::Parameters);
}

#[test]
fn an_arena_without_blocks_takes_part() {
    let mut arena = arena(&[], options(Stage::Nothing, DType::F32)).unwrap();
    assert!(arena.is_empty());
    assert!(!arena.step(&HYPER).unwrap().skipped);
}

#[test]
fn runs_repeat_bit_for_bit() {
    let layout = Layout::new("dp=3,pp=1,tp=1", Stage::Parameters, DType::Bf16);
    let run = || -> Vec<Values> {
        on(layout, |rank| {
            rank.train(0..5)?;
            rank.values()
        })
    };
    assert_eq!(run(), run());
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let run = |threads: usize, dtype| {
        let options = Options {
            pool: Pool::new(threads),
            ..options(Stage::Nothing, dtype)
        };
        let len = 50_000;
        let mut arena = arena(&[("a", len)], options).unwrap();
        let gradient: Vec<f32> = (0..len).map(|element| (element as f32).sin()).collect();
        backward(&mut arena, 0, &gradient);
        let norm = arena.step(&HYPER).unwrap().gradient_norm;
        (norm, arena.weights(0).unwrap().to_vec())
    };
    for dtype in DTYPES {
        let one = run(1, dtype);
        assert!([2, 3].iter().all(|threads| run(*threads, dtype) == one));
    }
}
