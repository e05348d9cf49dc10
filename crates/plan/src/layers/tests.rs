//! Splits of layers against all splits there are.

use super::*;
use proptest::prelude::*;

fn equal(layers: usize) -> LayerCosts {
    LayerCosts::equal(layers).unwrap()
}

fn counts(split: &[Range<usize>]) -> Vec<usize> {
    split.iter().map(Range::len).collect()
}

/// Every way to give `layers` layers to `parts` parts.
fn every_split(layers: usize, parts: usize) -> Vec<Vec<usize>> {
    if parts == 1 {
        return vec![vec![layers]];
    }
    let with_first = |first: usize| {
        let rest = every_split(layers - first, parts - 1);
        rest.into_iter()
            .map(move |rest| [vec![first], rest].concat())
    };
    (0..=layers).flat_map(with_first).collect()
}

fn largest(costs: &LayerCosts, split: &[Range<usize>]) -> f64 {
    let part =
        |(part, range): (usize, &Range<usize>)| costs.of_part(part, split.len(), range.clone());
    split.iter().enumerate().map(part).fold(0.0, f64::max)
}

#[test]
fn equal_layers_are_split_as_equally_as_can_be() {
    let ten = counts(&split_layers(&equal(10), 4).unwrap());
    assert_eq!(ten, [2, 2, 3, 3]);
    assert_eq!(counts(&split_layers(&equal(32), 8).unwrap()), [4; 8]);
}

#[test]
fn a_costly_head_takes_layers_from_the_last_part() {
    let costs = LayerCosts {
        embedding: 0.5,
        head: 3.0,
        ..equal(13)
    };
    assert_eq!(counts(&split_layers(&costs, 4).unwrap()), [4, 4, 4, 1]);
    let head = LayerCosts {
        head: 9.0,
        ..equal(6)
    };
    assert_eq!(counts(&split_layers(&head, 3).unwrap()), [3, 3, 0]);
}

#[test]
fn parts_without_anything_are_refused() {
    let refuse = |layers, parts| split_layers(&equal(layers), parts).unwrap_err().to_string();
    assert_eq!(
        refuse(2, 3),
        "cannot split 2 layers into 3 parts: there would be parts without a layer"
    );
    assert!(refuse(0, 1).contains("without a layer"));
    assert_eq!(
        refuse(2, 0),
        "cannot split 2 layers into 0 parts: there must be a part"
    );
    assert!(refuse(2, usize::MAX).contains("without a layer"));
    let refused = LayerCosts::equal(2000).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "2000 layers are more than the limit of 1024"
    );
    let negative = LayerCosts {
        head: -1.0,
        ..equal(3)
    };
    let refused = split_layers(&negative, 2).unwrap_err();
    assert_eq!(refused.to_string(), "the head cannot cost -1");
}

#[test]
fn an_explicit_split_has_all_layers() {
    assert_eq!(explicit_split(5, &[2, 0, 3]).unwrap(), [0..2, 2..2, 2..5]);
    let refused = explicit_split(5, &[2, 2]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot split 5 layers into 2 parts: the parts have 4 layers"
    );
    assert!(explicit_split(5, &[usize::MAX, 6]).is_err());
    assert!(explicit_split(0, &[]).is_err());
}

proptest! {
    #[test]
    fn no_split_has_a_cheaper_largest_part(
        layers in prop::collection::vec(0_u32..9, 0..8), parts in 1_usize..5, embedding in 0_u32..5, head in 0_u32..20,
    ) {
        let costs = LayerCosts {
            layers: layers.iter().copied().map(f64::from).collect(),
            embedding: f64::from(embedding),
            head: f64::from(head),
        };
        let holds = |counts: &Vec<usize>| counts.iter().enumerate().all(|(part, count)| {
            *count > 0 || part == 0 && embedding > 0 || part + 1 == parts && head > 0
        });
        let all = every_split(layers.len(), parts).into_iter().filter(holds);
        let best = all
            .map(|counts| largest(&costs, &explicit_split(layers.len(), &counts).unwrap()))
            .min_by(f64::total_cmp);
        match split_layers(&costs, parts) {
            Ok(split) => {
                prop_assert_eq!(Some(largest(&costs, &split)), best);
                prop_assert!(holds(&counts(&split)));
                prop_assert_eq!(explicit_split(layers.len(), &counts(&split)).unwrap(), split);
            }
            Err(_) => prop_assert_eq!(best, None),
        }
    }
}
