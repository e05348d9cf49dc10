//! Goal: everything a spec says about its ranks follows from the cut rule.
//! Method: random specs, compared with an oracle that cuts lists of indices element by element.

use std::collections::{BTreeMap, BTreeSet};

use cairn_tensor::element_count;
use proptest::{prelude::*, sample::Index};

use super::*;
use crate::{Mesh, testing};

type Element = Vec<usize>;

/// The elements of a box, in row-major order.
fn elements(region: &Region) -> Vec<Element> {
    let ranges = (0..region.ndim()).map(|dim| (region.offset[dim]..region.end(dim)).collect());
    product(&ranges.collect::<Vec<_>>())
}

fn product(dims: &[Vec<usize>]) -> Vec<Element> {
    dims.iter().fold(vec![vec![]], |found, indices| {
        let extend = |element: &Element| {
            let element = element.clone();
            indices
                .iter()
                .map(move |&index| [&element[..], &[index]].concat())
        };
        found.iter().flat_map(extend).collect()
    })
}

/// Part `index` of a list cut in `parts`.
fn cut<T: Clone>(list: &[T], parts: usize, index: usize) -> Vec<T> {
    let len = list.len().div_ceil(parts).max(1);
    list.chunks(len).nth(index).unwrap_or_default().to_vec()
}

/// The elements in a rank's buffer, by definition: cut each dim, take the product, cut it flat.
fn oracle(spec: &TensorSpec, rank: usize) -> Vec<Element> {
    let sharding = match spec.distribution() {
        Distribution::Mesh(sharding) => sharding,
        Distribution::Listed(listed) => {
            return listed.pieces(rank).iter().flat_map(in_piece).collect();
        }
    };
    let Some(coords) = sharding.mesh().coords_of(rank) else {
        return vec![];
    };
    if sharding
        .pins()
        .iter()
        .any(|&(axis, index)| coords[axis] != index)
    {
        return vec![];
    }
    let size = |axis: usize| sharding.mesh().axes()[axis].size;
    let mut dims = Vec::new();
    for (dim, &len) in sharding.dims().iter().zip(spec.shape()) {
        let indices: Vec<usize> = (0..len).collect();
        let groups = (0..dim.groups).map(|group| cut(&indices, dim.groups, group));
        let own = |group| {
            dim.axes.iter().fold(group, |list: Vec<usize>, &axis| {
                cut(&list, size(axis), coords[axis])
            })
        };
        dims.push(groups.flat_map(own).collect());
    }
    sharding.flat().iter().fold(product(&dims), |list, &axis| {
        cut(&list, size(axis), coords[axis])
    })
}

fn in_piece(piece: &Piece) -> Vec<Element> {
    let all = elements(&piece.region);
    match &piece.flat {
        None => all,
        Some(flat) => all[flat.clone()].to_vec(),
    }
}

/// Which element each place of a buffer holds, according to boxes; fails if a place is named twice.
fn placed(boxes: &[LocalBox]) -> BTreeMap<usize, Element> {
    let mut places = BTreeMap::new();
    for part in boxes {
        assert_eq!(part.local.shape, part.region.extent);
        for element in elements(&part.region) {
            let steps = (0..element.len())
                .map(|dim| (element[dim] - part.region.offset[dim]) * part.local.strides[dim]);
            let before = places.insert(part.local.offset + steps.sum::<usize>(), element);
            assert_eq!(before, None, "one place, two elements");
        }
    }
    places
}

fn all_ranks(spec: &TensorSpec) -> std::ops::RangeInclusive<usize> {
    0..=spec.max_rank() + 1
}

/// Ranks with equal pieces that are the same term of a partial value.
fn brute_force_replicas(spec: &TensorSpec, rank: usize) -> Vec<usize> {
    let term = |rank: usize| -> Vec<usize> {
        let Some(sharding) = spec.sharding() else {
            return vec![];
        };
        let coords = sharding.mesh().coords_of(rank).unwrap();
        sharding
            .partial()
            .iter()
            .map(|&(axis, _)| coords[axis])
            .collect()
    };
    let same = |other: &usize| {
        spec.holds(*other) && spec.pieces(*other) == spec.pieces(rank) && term(*other) == term(rank)
    };
    let mut ranks: Vec<usize> = all_ranks(spec).filter(same).collect();
    if let Some(sharding) = spec.sharding() {
        ranks.sort_by_key(|&rank| sharding.mesh().coords_of(rank));
    }
    ranks
}

/// The ranks that stand for all shards: the first term, and of that replica 0.
fn representatives(spec: &TensorSpec) -> Vec<usize> {
    let first_term = |rank: usize| match spec.sharding() {
        None => true,
        Some(sharding) => {
            let coords = sharding.mesh().coords_of(rank).unwrap();
            sharding
                .partial()
                .iter()
                .all(|&(axis, _)| coords[axis] == 0)
        }
    };
    let stands = |rank: &usize| {
        spec.replica(*rank)
            .is_some_and(|replica| replica.index == 0)
            && first_term(*rank)
    };
    all_ranks(spec).filter(stands).collect()
}

fn check_rank(spec: &TensorSpec, rank: usize) -> Result<(), TestCaseError> {
    let expected = oracle(spec, rank);
    let shape = spec.local_shape(rank);
    prop_assert_eq!(shape.is_some(), spec.holds(rank));
    prop_assert_eq!(
        shape.map_or(0, |shape| element_count(&shape).unwrap()),
        expected.len()
    );
    prop_assert_eq!(spec.local_element_count(rank), expected.len());
    let boxes = spec.local_boxes(rank);
    prop_assert_eq!(
        placed(&boxes),
        (0..).zip(expected.clone()).collect::<BTreeMap<_, _>>()
    );
    let pieces = spec.pieces(rank);
    prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
    let mut held: Vec<Element> = pieces.iter().flat_map(in_piece).collect();
    held.sort();
    let mut sorted = expected;
    sorted.sort();
    prop_assert_eq!(held, sorted);
    for piece in &pieces {
        prop_assert_eq!(
            placed(&piece.boxes()),
            (0..).zip(in_piece(piece)).collect::<BTreeMap<_, _>>()
        );
        prop_assert_eq!(&piece.to_string().parse::<Piece>().unwrap(), piece);
    }
    Ok(())
}

fn check_replicas(spec: &TensorSpec, rank: usize) -> Result<(), TestCaseError> {
    let ranks = spec.replica_ranks(rank);
    let Some(replica) = spec.replica(rank) else {
        prop_assert!(ranks.is_empty());
        return Ok(());
    };
    prop_assert_eq!(replica.count, ranks.len());
    prop_assert_eq!(ranks[replica.index], rank);
    prop_assert_eq!(ranks[0], replica.leader);
    if !spec.pieces(rank).is_empty() {
        prop_assert_eq!(ranks, brute_force_replicas(spec, rank));
    }
    Ok(())
}

fn check_cells(spec: &TensorSpec, region: &Region) -> Result<(), TestCaseError> {
    let cells = spec.cells_overlapping(region);
    let ranks = spec.ranks_overlapping(region);
    prop_assert!(cells.iter().all(|cell| ranks.contains(&cell.rank)));
    let mut expected: BTreeMap<usize, Vec<LocalBox>> = BTreeMap::new();
    for rank in representatives(spec) {
        let clipped: Vec<_> = spec
            .local_boxes(rank)
            .iter()
            .filter_map(|part| part.clip(region))
            .collect();
        if !clipped.is_empty() {
            expected.insert(rank, clipped);
        }
    }
    prop_assert_eq!(cells.len(), expected.len());
    prop_assert_eq!(
        cells
            .into_iter()
            .map(|cell| (cell.rank, cell.boxes))
            .collect::<BTreeMap<_, _>>(),
        expected
    );
    Ok(())
}

/// Every element is held by exactly one shard, or by at least one if pieces are listed.
fn check_coverage(spec: &TensorSpec) -> Result<(), TestCaseError> {
    let shards = representatives(spec);
    let held: Vec<Element> = shards.iter().flat_map(|&rank| oracle(spec, rank)).collect();
    let distinct: BTreeSet<&Element> = held.iter().collect();
    prop_assert_eq!(Some(distinct.len()), element_count(spec.shape()));
    prop_assert!(spec.sharding().is_none() || held.len() == distinct.len());
    Ok(())
}

fn check(spec: &TensorSpec, region: &Region) -> Result<(), TestCaseError> {
    let holders: BTreeSet<usize> = spec.ranks().into_iter().collect();
    prop_assert_eq!(
        holders,
        all_ranks(spec).filter(|&rank| spec.holds(rank)).collect()
    );
    for rank in all_ranks(spec) {
        check_rank(spec, rank)?;
        check_replicas(spec, rank)?;
    }
    check_cells(spec, region)?;
    check_cells(spec, &Region::whole(spec.shape()))?;
    check_coverage(spec)
}

fn region_in(shape: &[usize], corners: &[(Index, Index)]) -> Region {
    let mut region = Region::whole(shape);
    for (dim, (&len, (a, b))) in shape.iter().zip(corners).enumerate() {
        let (a, b) = (a.index(len + 1), b.index(len + 2));
        region = region.with_dim(dim, a.min(b), a.max(b) - a.min(b));
    }
    region
}

fn corners() -> impl Strategy<Value = Vec<(Index, Index)>> {
    prop::collection::vec(any::<(Index, Index)>(), 4)
}

fn partial_specs() -> impl Strategy<Value = TensorSpec> {
    (testing::meshes(), testing::shapes())
        .prop_flat_map(|(mesh, shape)| (testing::partial_shardings(mesh, shape.len()), Just(shape)))
        .prop_map(|(sharding, shape)| TensorSpec::new(DType::I32, shape, sharding).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn every_rank_holds_what_the_cut_rule_says(spec in testing::specs(DType::F32), corners in corners()) {
        check(&spec, &region_in(spec.shape(), &corners))?;
    }

    #[test]
    fn terms_of_a_partial_value_are_no_replicas(spec in partial_specs(), corners in corners()) {
        check(&spec, &region_in(spec.shape(), &corners))?;
    }

    #[test]
    fn specs_and_shardings_print_and_parse_back(spec in prop_oneof![testing::specs(DType::Bf16), partial_specs()]) {
        let mesh = spec.sharding().map_or(Mesh::single(), |sharding| sharding.mesh().clone());
        prop_assert_eq!(&TensorSpec::parse(&mesh, &spec.to_string()).unwrap(), &spec);
        if let Some(sharding) = spec.sharding() {
            prop_assert_eq!(&Sharding::parse(&mesh, &sharding.to_string()).unwrap(), sharding);
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "([a-d0-9@,|+/=#:;{}() \\[\\]-]|f32\\[|listed\\(|flat\\(|at\\(|sum\\(| on ){0,12}") {
        let mesh = Mesh::new([("a", 2), ("b", 3)]).unwrap();
        let _ = TensorSpec::parse(&mesh, &text);
        let _ = TensorSpec::parse(&mesh, &format!("f32[{text}]"));
        let _ = Sharding::parse(&mesh, &text);
        let _ = text.parse::<Mesh>();
        let _ = text.parse::<Piece>();
    }
}
