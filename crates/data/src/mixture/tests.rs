//! Turns follow the weights, and the closed form is what counting gives.

use super::Mixture;
use proptest::prelude::*;

fn mixture(weights: &[f64]) -> Mixture {
    Mixture::new(weights.iter().map(|weight| ("a", *weight))).unwrap()
}

#[test]
fn one_source_gives_everything() {
    assert_eq!(mixture(&[0.3]).at(u64::MAX), (0, u64::MAX));
}

#[test]
fn one_to_two_to_seven_is_exact_after_ten() {
    for weights in [[1.0, 2.0, 7.0], [0.1, 0.2, 0.7]] {
        let mixture = mixture(&weights);
        assert_eq!(mixture.counts(10), [1, 2, 7]);
        assert_eq!(mixture.counts(1_000_000), [100_000, 200_000, 700_000]);
        let turns: Vec<usize> = (0..20).map(|position| mixture.at(position).0).collect();
        assert_eq!(turns[..10], turns[10..]);
    }
}

#[test]
fn a_weight_that_is_not_positive_is_named() {
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Mixture::new([("good", 1.0), ("bad", weight)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("source `bad` has the weight {weight}, which is not positive")
        );
    }
}

#[test]
fn a_mixture_of_nothing_is_refused() {
    assert_eq!(
        Mixture::new([]).unwrap_err().to_string(),
        "the number of sources must be 1 to 4096, not 0"
    );
}

#[test]
fn the_smallest_weight_is_not_forgotten() {
    let mixture = mixture(&[1e300, 1e-300]);
    assert!(mixture.counts(1 << 50)[1] > 0);
}

proptest! {
    #[test]
    fn counting_turns_gives_the_closed_form(weights in prop::collection::vec(1u32..50, 1..9)) {
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let mixture = mixture(&weights);
        let sum: f64 = weights.iter().sum();
        let mut counts = vec![0; weights.len()];
        for position in 0..300 {
            prop_assert_eq!(&mixture.counts(position), &counts);
            for (count, weight) in counts.iter().zip(&weights) {
                // Three splits lie above each of up to eight sources.
                prop_assert!((*count as f64 - position as f64 * weight / sum).abs() <= 2.0);
            }
            let (source, given) = mixture.at(position);
            prop_assert_eq!(given, counts[source]);
            counts[source] += 1;
        }
    }

    #[test]
    fn late_turns_are_found_like_early_ones(weights in prop::collection::vec(1e-3f64..1e3, 1..9), position in 0u64..1 << 62) {
        let mixture = mixture(&weights);
        let (before, after) = (mixture.counts(position), mixture.counts(position + 1));
        prop_assert_eq!(before.iter().sum::<u64>(), position);
        let (source, given) = mixture.at(position);
        for (number, (before, after)) in before.into_iter().zip(after).enumerate() {
            prop_assert_eq!(after - before, u64::from(number == source));
            if number == source {
                prop_assert_eq!(before, given);
            }
        }
    }
}
