//! An order is a permutation of every epoch, and looks like chance.

use super::{MAX_SAMPLES, Order};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn epoch(count: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let order = Order::new(count, Some(seed)).unwrap();
    let at = |place: u64| {
        let (found, index) = order.at(epoch * count + place);
        assert_eq!(found, epoch);
        index
    };
    (0..count).map(at).collect()
}

#[test]
fn one_sample_comes_every_time() {
    let order = Order::new(1, Some(3)).unwrap();
    assert_eq!(
        (0..4)
            .map(|position| order.at(position))
            .collect::<Vec<_>>(),
        [(0, 0), (1, 0), (2, 0), (3, 0)]
    );
}

#[test]
fn no_samples_have_no_order() {
    assert_eq!(
        Order::new(0, None).unwrap_err().to_string(),
        "the number of samples must be 1 to 9223372036854775808, not 0"
    );
    Order::new(MAX_SAMPLES + 1, None).unwrap_err();
}

#[test]
fn without_a_seed_samples_come_one_after_another() {
    let order = Order::new(3, None).unwrap();
    assert_eq!(
        (0..5)
            .map(|position| order.at(position).1)
            .collect::<Vec<_>>(),
        [0, 1, 2, 0, 1]
    );
}

#[test]
fn the_largest_order_has_no_repetition_either() {
    let order = Order::new(MAX_SAMPLES, Some(1)).unwrap();
    let places = (0..20_000).chain(MAX_SAMPLES - 20_000..MAX_SAMPLES);
    let found: BTreeSet<u64> = places.map(|place| order.at(place).1).collect();
    assert_eq!(found.len(), 40_000);
    assert!(found.iter().all(|index| *index < MAX_SAMPLES));
    assert_eq!(order.at(u64::MAX).0, 1);
}

#[test]
fn the_order_stays_the_same_from_version_to_version() {
    assert_eq!(epoch(10, 42, 0), [5, 1, 7, 6, 8, 3, 2, 4, 0, 9]);
    let large = Order::new(1 << 40, Some(42)).unwrap();
    assert_eq!(large.at(5), (0, 238_458_254_990));
    assert_eq!(large.at((3 << 40) + 5), (3, 352_411_023_520));
}

#[test]
fn seeds_and_epochs_have_orders_of_their_own() {
    let orders: BTreeSet<Vec<u64>> = (0..8)
        .flat_map(|seed| (0..8).map(move |e| epoch(50, seed, e)))
        .collect();
    assert_eq!(orders.len(), 64);
}

/// How far counts are from equal ones, in standard deviations.
fn excess(counts: &[u64]) -> f64 {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let square: f64 = counts
        .iter()
        .map(|count| (*count as f64 - mean).powi(2) / mean)
        .sum();
    let freedom = counts.len() as f64 - 1.0;
    (square - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn few_samples_come_in_all_orders_equally_often() {
    let mut counts = std::collections::BTreeMap::new();
    for number in 0..12_000 {
        *counts.entry(epoch(4, 9, number)).or_insert(0) += 1;
    }
    let counts: Vec<u64> = counts.into_values().collect();
    assert_eq!(counts.len(), 24);
    assert!(excess(&counts) < 5.0, "{counts:?}");
}

#[test]
fn every_sample_comes_everywhere_equally_often() {
    for count in [16, 100, 300] {
        let mut seen = vec![0; usize::try_from(count * count).unwrap()];
        for number in 0..2_000 {
            for (place, index) in (0..).zip(epoch(count, 5, number)) {
                seen[usize::try_from(place * count + index).unwrap()] += 1;
            }
        }
        assert!(excess(&seen) < 5.0, "{count}");
    }
}

#[test]
fn neighbours_do_not_stay_together() {
    let count = 10_000;
    let order = epoch(count, 1, 0);
    let rising = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((4_850..5_150).contains(&rising), "{rising}");
    let close = order
        .windows(2)
        .filter(|pair| pair[0].abs_diff(pair[1]) <= 50)
        .count();
    assert!((60..140).contains(&close), "{close}");
    let fixed = (0..)
        .zip(&order)
        .filter(|(place, index)| place == *index)
        .count();
    assert!(fixed < 8, "{fixed}");
}

proptest! {
    #[test]
    fn every_epoch_is_a_permutation(count in 1u64..700, seed: u64, number in 0u64..1 << 50) {
        let mut order = epoch(count, seed, number);
        order.sort_unstable();
        prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
    }
}
