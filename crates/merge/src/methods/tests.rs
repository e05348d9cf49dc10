//! Methods against arithmetic done by hand, against sorting, and against themselves on other threads and in other pieces.
//!
//! That they agree with mergekit is checked in `python/tests/test_merge.py`.

use super::*;
use crate::operands::Lanes;
use crate::testing::Case;
use cairn_tensor::DType;
use proptest::prelude::*;

fn task(weight: f64, thinning: Thinning) -> Task {
    Task { weight, thinning }
}

fn tasks(thinning: Thinning, election: Option<Election>, weights: &[f64]) -> Tasks {
    Tasks {
        tasks: weights
            .iter()
            .map(|weight| task(*weight, thinning))
            .collect(),
        election,
        rescale: Rescale::No,
        normalize: false,
        lambda: 1.0,
    }
}

/// Numbers that look random, some of them equal.
fn noise(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..len).map(|_| (next() * 512.0).round() / 512.0).collect()
}

/// Every kind of method, for a base and three models.
fn methods(shape: &[usize]) -> Vec<Method> {
    let whole = Lanes::whole(shape.iter().product());
    let all = [0.5, 0.25, 1.0];
    let combine = |rule, from_base, lanes| {
        Method::Combine(Combine {
            rule,
            from_base,
            lanes,
        })
    };
    let density = 0.4;
    let thin = |thinning, election| {
        Method::Tasks(Tasks {
            rescale: Rescale::Sum,
            normalize: true,
            ..tasks(thinning, election, &all)
        })
    };
    vec![
        Method::Linear {
            weights: vec![1.0, 2.0, 3.0, 4.0],
            normalize: true,
        },
        combine(Rule::Stock, true, Lanes::rows(shape)),
        combine(
            Rule::Karcher {
                max_iterations: 5,
                tolerance: 1e-5,
            },
            false,
            whole,
        ),
        thin(Thinning::All, None),
        thin(Thinning::Largest { density }, Some(Election::Sum)),
        thin(
            Thinning::Middle {
                density,
                gamma: 0.1,
            },
            None,
        ),
        thin(Thinning::Quantile { density }, Some(Election::Count)),
        thin(Thinning::Random { density }, Some(Election::Sum)),
        thin(
            Thinning::Ranked {
                density,
                epsilon: 0.2,
            },
            None,
        ),
        thin(
            Thinning::RankedWhole {
                density,
                epsilon: 0.2,
            },
            None,
        ),
        Method::Sce { select_topk: 0.3 },
        Method::Fusion,
        Method::NearSwap { t: 0.05 },
    ]
}

#[test]
fn bytes_do_not_depend_on_threads_or_pieces() {
    let shape = [37, 1501];
    let elements = shape.iter().product();
    for dtype in [DType::F32, DType::Bf16, DType::F16, DType::F64] {
        let mut case = Case::new(
            &shape,
            true,
            (0..4).map(|seed| noise(seed, elements)).collect(),
        );
        case.dtype = dtype;
        for method in methods(&shape) {
            case.threads = 1;
            let expected = case.bytes(&method, elements);
            for (threads, piece) in [(2, 1), (3, 1499), (5, 16384)] {
                case.threads = threads;
                // One element at a time is slow; a few are enough.
                let piece = if piece == 1 { 7919 } else { piece };
                assert_eq!(case.bytes(&method, piece), expected, "{dtype} {method:?}");
            }
        }
    }
}

#[test]
fn a_seed_decides_and_another_seed_differs() {
    let mut case = Case::new(
        &[1000],
        true,
        (0..2).map(|seed| noise(seed, 1000)).collect(),
    );
    let method = Method::Tasks(tasks(Thinning::Random { density: 0.5 }, None, &[1.0]));
    let first = case.values(&method);
    assert_eq!(case.values(&method), first);
    case.seed = 1;
    assert_ne!(case.values(&method), first);
}

#[test]
fn ties_keeps_the_largest_and_follows_the_majority() {
    let base = vec![1.0; 4];
    let models = vec![vec![2.0, 1.5, 1.0, -3.0], vec![1.25, 0.0, 3.0, 2.0]];
    let case = Case::new(&[4], true, [vec![base], models].concat());
    let method = Method::Tasks(Tasks {
        normalize: true,
        ..tasks(
            Thinning::Largest { density: 0.5 },
            Some(Election::Sum),
            &[1.0, 1.0],
        )
    });
    // The first model keeps +1 and -4, the second +2 and, of the equal -1 and +1, the first.
    assert_eq!(case.values(&method), [2.0, 0.0, 3.0, -3.0]);
}

#[test]
fn a_zero_change_agrees_with_nobody() {
    let case = Case::new(
        &[2],
        true,
        vec![vec![1.0, 1.0], vec![1.0, 2.0], vec![1.0, 4.0]],
    );
    let method = Method::Tasks(Tasks {
        normalize: true,
        ..tasks(Thinning::All, Some(Election::Sum), &[1.0, 1.0])
    });
    assert_eq!(case.values(&method), [1.0, 3.0]);
}

#[test]
fn models_that_do_not_differ_merge_into_themselves() {
    let shape = [8, 33];
    let values = noise(3, 264);
    let case = Case::new(&shape, true, vec![values.clone(); 4]);
    for method in methods(&shape) {
        for (merged, value) in case.values(&method).iter().zip(&values) {
            assert!((merged - value).abs() < 1e-6, "{method:?}");
        }
    }
}

#[test]
fn an_empty_tensor_stays_empty() {
    for shape in [vec![0], vec![0, 5], vec![5, 0]] {
        let case = Case::new(&shape, true, vec![Vec::new(); 4]);
        for method in methods(&shape) {
            assert!(case.bytes(&method, 1).is_empty(), "{method:?}");
        }
    }
}

#[test]
fn halfway_on_the_arc_between_orthogonal_vectors_is_their_scaled_sum() {
    let case = Case::new(&[2], false, vec![vec![1.0, 0.0], vec![0.0, 1.0]]);
    let method = Method::Combine(Combine {
        rule: Rule::FineArc { t: 0.5 },
        from_base: false,
        lanes: Lanes::whole(2),
    });
    for value in case.values(&method) {
        assert!((value - 0.5_f32.sqrt()).abs() < 1e-6);
    }
}

#[test]
fn columns_have_angles_of_their_own() {
    // The first columns are parallel, the second orthogonal.
    let case = Case::new(
        &[2, 2],
        false,
        vec![vec![1.0, 1.0, 0.0, 0.0], vec![3.0, 0.0, 0.0, 1.0]],
    );
    let method = Method::Combine(Combine {
        rule: Rule::FineArc { t: 0.5 },
        from_base: false,
        lanes: Lanes::along(&[2, 2], 0),
    });
    let half = 0.5_f32.sqrt();
    for (value, expected) in case.values(&method).iter().zip([2.0, half, 0.0, half]) {
        assert!((value - expected).abs() < 1e-6);
    }
}

#[test]
fn random_thinning_keeps_its_share_and_the_sum_of_magnitudes() {
    let elements = 1 << 18;
    let case = Case::new(
        &[512, 512],
        true,
        vec![vec![0.0; elements], noise(1, elements)],
    );
    for (thinning, rescale) in [
        (Thinning::Random { density: 0.3 }, Rescale::Sum),
        (Thinning::Random { density: 0.3 }, Rescale::Probability),
        (
            Thinning::Ranked {
                density: 0.3,
                epsilon: 0.2,
            },
            Rescale::Sum,
        ),
    ] {
        let method = Method::Tasks(Tasks {
            rescale,
            ..tasks(thinning, None, &[1.0])
        });
        let values = case.values(&method);
        let kept = values.iter().filter(|value| **value != 0.0).count() as f64 / elements as f64;
        // A few changes are zero to begin with.
        assert!((kept - 0.3).abs() < 0.005, "{thinning:?}: {kept}");
        let sum = |values: &[f32]| {
            values
                .iter()
                .map(|value| f64::from(value.abs()))
                .sum::<f64>()
        };
        let ratio = sum(&values) / sum(&case.models[1]);
        let tolerance = if rescale == Rescale::Sum { 1e-5 } else { 0.01 };
        assert!((ratio - 1.0).abs() < tolerance, "{thinning:?}: {ratio}");
    }
}

#[test]
fn large_changes_survive_ranked_thinning_more_often() {
    let (rows, width) = (4096, 64);
    let row: Vec<f32> = (0..width).map(|at| (at + 1) as f32).collect();
    let case = Case::new(
        &[rows, width],
        true,
        vec![vec![0.0; rows * width], row.repeat(rows)],
    );
    let method = Method::Tasks(tasks(
        Thinning::Ranked {
            density: 0.5,
            epsilon: 0.3,
        },
        None,
        &[1.0],
    ));
    let values = case.values(&method);
    for column in [0, 21, 42, 63] {
        let kept = (0..rows)
            .filter(|row| values[row * width + column] != 0.0)
            .count() as f64;
        let expected = 0.2 + 0.6 * column as f64 / 63.0;
        let sigma = (expected * (1.0 - expected) / rows as f64).sqrt();
        assert!(
            (kept / rows as f64 - expected).abs() < 4.5 * sigma,
            "column {column}"
        );
    }
}

/// The elements that stay, found by sorting.
fn largest_by_sorting(changes: &[f32], count: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..changes.len()).collect();
    order.sort_by(|left, right| changes[*right].abs().total_cmp(&changes[*left].abs()));
    let mut kept = vec![false; changes.len()];
    order[..count].iter().for_each(|at| kept[*at] = true);
    kept
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn selection_agrees_with_a_stable_sort(
        values in prop::collection::vec((-20_i8..20, any::<bool>()), 1..400),
        density in 0.01_f64..0.99,
        dtype in prop::sample::select(vec![DType::F32, DType::Bf16, DType::F64]),
    ) {
        // Few distinct values, so that many are equal.
        let values: Vec<f32> = values
            .iter()
            .map(|(value, coarse)| f32::from(*value) / if *coarse { 1.0 } else { 16.0 })
            .collect();
        let mut case = Case::new(&[values.len()], true, vec![vec![0.0; values.len()], values.clone()]);
        case.dtype = dtype;
        let method = Method::Tasks(tasks(Thinning::Largest { density }, None, &[1.0]));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the method does")]
        let count = ((density * values.len() as f64) as usize).max(1);
        let kept = largest_by_sorting(&values, count);
        let expected: Vec<f32> =
            values.iter().zip(kept).map(|(value, kept)| if kept { *value } else { 0.0 }).collect();
        prop_assert_eq!(case.values(&method), expected);
    }

    #[test]
    fn the_middle_agrees_with_a_stable_sort(
        values in prop::collection::vec(-9_i8..9, 1..200),
        density in 0.0_f64..0.99,
        gamma in 0.0_f64..0.5,
    ) {
        let values: Vec<f32> = values.iter().map(|value| f32::from(*value)).collect();
        let len = values.len();
        let case = Case::new(&[len], true, vec![vec![0.0; len], values.clone()]);
        let method = Method::Tasks(tasks(Thinning::Middle { density, gamma }, None, &[1.0]));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the method does")]
        let share = |share: f64| (share * len as f64) as usize;
        let (target, top) = (share(density), share(gamma));
        let low = (len - target).saturating_sub(top);
        let mut order: Vec<usize> = (0..len).collect();
        order.sort_by(|left, right| values[*left].abs().total_cmp(&values[*right].abs()));
        let mut expected = vec![0.0; len];
        order[low..low + target].iter().for_each(|at| expected[*at] = values[*at]);
        prop_assert_eq!(case.values(&method), expected);
    }
}
