//! Cross entropy, whole and with the vocabulary shared out.

use crate::support::{check_gradients, close, random, same_on_all_threads};
use cairn_kernels::cross_entropy::CrossEntropy;
use cairn_kernels::{Pool, Real};
use std::ops::Range;

/// The losses and the gradients of all logits, computed by ranks that hold the columns between `cuts`.
fn run<R: Real>(
    pool: &Pool,
    logits: &[R],
    targets: &[i64],
    cuts: &[usize],
    [z_loss, slope]: [f64; 2],
) -> [Vec<R>; 2] {
    let parts: Vec<_> = cuts.windows(2).map(|ends| ends[0]..ends[1]).collect();
    let rows = targets.len();
    let vocabulary = logits.len() / rows.max(1);
    let columns = |part: &Range<usize>| -> Vec<R> {
        let rows = logits.chunks(vocabulary.max(1));
        rows.flat_map(|row| row[part.clone()].to_vec()).collect()
    };
    let ranks: Vec<_> = parts
        .iter()
        .map(|part| {
            let (first, width) = (part.start, part.len());
            (
                CrossEntropy {
                    first,
                    width,
                    z_loss,
                },
                columns(part),
            )
        })
        .collect();
    let zeros = || vec![R::ZERO; rows];
    let mut maxima = vec![R::NEGATIVE_INFINITY; rows];
    for (rank, logits) in &ranks {
        let mut mine = zeros();
        rank.row_max(pool, logits, &mut mine);
        maxima
            .iter_mut()
            .zip(mine)
            .for_each(|(all, mine)| *all = all.max(mine));
    }
    let (mut sums, mut target_logits) = (zeros(), zeros());
    for (rank, logits) in &ranks {
        let (mut mine, mut target) = (zeros(), zeros());
        rank.row_sums(pool, logits, targets, &maxima, &mut mine, &mut target);
        sums.iter_mut()
            .zip(mine)
            .for_each(|(all, mine)| *all += mine);
        target_logits
            .iter_mut()
            .zip(target)
            .for_each(|(all, mine)| *all += mine);
    }
    let mut losses = zeros();
    ranks[0]
        .0
        .losses(targets, &maxima, &target_logits, &mut sums, &mut losses);
    let mut gradient = vec![R::ZERO; logits.len()];
    for ((rank, mut logits), part) in ranks.into_iter().zip(&parts) {
        rank.gradient(
            pool,
            targets,
            &sums,
            &vec![R::from_f64(slope); rows],
            &mut logits,
        );
        let rows = gradient
            .chunks_mut(vocabulary.max(1))
            .zip(logits.chunks(part.len().max(1)));
        rows.for_each(|(all, mine)| all[part.clone()].copy_from_slice(mine));
    }
    [losses, gradient]
}

const TARGETS: [i64; 5] = [0, 10, -100, 4, 5];

#[test]
fn gradients_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    let logits = random(1, 5 * 11);
    for cuts in [&[0, 11][..], &[0, 5, 10, 11], &[0, 11, 11]] {
        for z_loss in [0.0, 0.1] {
            let run = |x: &[f64]| run(&pool, x, &TARGETS, cuts, [z_loss, 0.3]);
            let [_, gradient] = run(&logits);
            check_gradients([&logits], [&gradient], |[logits]| {
                run(logits)[0].iter().map(|loss| loss * 0.3).sum()
            });
        }
    }
}

#[test]
fn the_loss_is_the_negative_logarithm_of_the_probability() {
    let logits = random::<f64>(1, 5 * 11);
    let [losses, _] = run(&Pool::new(1), &logits, &TARGETS, &[0, 4, 11], [0.0, 1.0]);
    for ((row, target), loss) in logits.chunks(11).zip(TARGETS).zip(losses) {
        let total: f64 = row.iter().map(|x| x.exp()).sum();
        let expected =
            usize::try_from(target).map_or(0.0, |target| -(row[target].exp() / total).ln());
        assert!(close(&[loss], &[expected], 1e-12));
    }
}

#[test]
fn ignored_rows_have_neither_loss_nor_gradient() {
    let mut logits = random::<f32>(1, 5 * 11);
    logits[2 * 11..3 * 11].fill(f32::NAN);
    let [losses, gradient] = run(&Pool::new(1), &logits, &TARGETS, &[0, 11], [0.1, 1.0]);
    assert_eq!(losses[2], 0.0);
    assert_eq!(gradient[2 * 11..3 * 11], [0.0; 11]);
    assert!(losses.iter().chain(&gradient).all(|x| x.is_finite()));
}

#[test]
fn large_logits_neither_overflow_nor_hide_what_is_no_number() {
    let logits = [1e4, 1e4 + 1.0, -1e4, f32::NAN, 0.0, 0.0];
    let [losses, gradient] = run(&Pool::new(1), &logits, &[0, 2], &[0, 3], [0.0, 1.0]);
    assert!(close(&losses[..1], &[1.313_261_7], 1e-6));
    assert!(losses[1].is_nan());
    assert!(gradient[3..].iter().all(|x| x.is_nan()));
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let logits = random::<f32>(1, 70 * 1013);
    let targets: Vec<i64> = (0..70).map(|row| row * 14 - 28).collect();
    same_on_all_threads(|pool| run(pool, &logits, &targets, &[0, 500, 1013], [1e-4, 0.5]).into());
}
