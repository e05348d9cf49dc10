//! Goal: boxes behave as sets of indices. Method: compare with the sets themselves.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn region(text: &str) -> Region {
    text.parse().unwrap()
}

#[test]
fn the_region_of_a_scalar_prints_as_nothing_and_has_one_element() {
    let scalar = Region::whole(&[]);
    assert_eq!(scalar.to_string(), "");
    assert_eq!(region(""), scalar);
    assert_eq!(scalar.element_count(), 1);
    assert_eq!(scalar.intersect(&scalar), Some(scalar.clone()));
    assert!(scalar.subtract(&scalar).is_empty());
}

#[test]
fn regions_of_different_ndim_never_meet() {
    assert_eq!(region("0:2").intersect(&region("0:2,0:2")), None);
    assert!(!region("0:2").contains(&region("0:2,0:2")));
}

#[test]
fn bad_text_is_refused_with_the_grammar() {
    for text in [
        "1",
        "1:",
        "0:1,",
        "a:b",
        "-1:2",
        "0:1;0:2",
        "18446744073709551615:1",
    ] {
        let error = text.parse::<Region>().unwrap_err();
        assert!(error.to_string().contains("offset:extent"), "{text}");
    }
}

#[test]
fn a_region_at_the_end_of_the_address_space_does_not_overflow() {
    let huge = Region {
        offset: vec![usize::MAX],
        extent: vec![usize::MAX],
    };
    assert_eq!(huge.end(0), usize::MAX);
    assert_eq!(huge.intersect(&huge), None);
    assert_eq!(Region::whole(&[usize::MAX, 2]).element_count(), usize::MAX);
}

fn indices(region: &Region) -> BTreeSet<Vec<usize>> {
    let mut all = BTreeSet::from([vec![]]);
    for dim in 0..region.ndim() {
        all = all
            .into_iter()
            .flat_map(|index| {
                (region.offset[dim]..region.end(dim)).map(move |i| [&index[..], &[i]].concat())
            })
            .collect();
    }
    all
}

fn boxes(ndim: usize) -> impl Strategy<Value = Region> {
    prop::collection::vec((0usize..4, 0usize..4), ndim).prop_map(|ranges| Region {
        offset: ranges.iter().map(|range| range.0).collect(),
        extent: ranges.iter().map(|range| range.1).collect(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn boxes_are_sets_of_indices((a, b) in (0usize..4).prop_flat_map(|ndim| (boxes(ndim), boxes(ndim)))) {
        let (in_a, in_b) = (indices(&a), indices(&b));
        prop_assert_eq!(a.element_count(), in_a.len());
        prop_assert_eq!(a.is_empty(), in_a.is_empty());
        prop_assert_eq!(a.contains(&b), in_b.is_subset(&in_a));
        let shared: BTreeSet<_> = in_a.intersection(&in_b).cloned().collect();
        prop_assert_eq!(a.meets(&b), !shared.is_empty());
        prop_assert_eq!(a.intersect(&b).map(|region| indices(&region)).unwrap_or_default(), shared);
        let mut left = BTreeSet::new();
        for region in a.subtract(&b) {
            prop_assert!(!region.is_empty());
            for index in indices(&region) {
                prop_assert!(left.insert(index), "written twice");
            }
        }
        prop_assert_eq!(left, in_a.difference(&in_b).cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(&region(&a.to_string()), &a);
    }
}
