//! Property-test strategies: small meshes, shardings, shapes and lists with every feature and edge case.

use std::collections::BTreeMap;

use cairn_tensor::{DType, ReduceOp};
use proptest::{prelude::*, sample::Index};

use crate::{DimSharding, Distribution, Listed, Mesh, Piece, Region, Sharding, TensorSpec};

/// Meshes of up to 3 axes and 18 ranks: over the first ranks, later ones, or any in any order.
pub fn meshes() -> impl Strategy<Value = Mesh> {
    let axes = prop_oneof![
        1 => Just(vec![]),
        4 => prop::collection::vec(1usize..=4, 1),
        4 => prop::collection::vec(1usize..=3, 2),
        2 => prop::collection::vec(1usize..=3, 3),
    ];
    axes.prop_flat_map(|sizes| {
        let size: usize = sizes.iter().product();
        let ranks = prop_oneof![
            4 => Just((0..size).collect::<Vec<_>>()),
            1 => (1usize..5).prop_map(move |first| (first..first + size).collect()),
            1 => Just((0..size + 3).collect::<Vec<_>>()).prop_shuffle().prop_map(move |mut ranks| {
                ranks.truncate(size);
                ranks
            }),
        ];
        (Just(sizes), ranks)
    })
    .prop_map(|(sizes, ranks)| {
        Mesh::with_ranks(["a", "b", "c"].into_iter().zip(sizes), ranks).expect("a valid mesh")
    })
}

/// Shapes of up to 4 dims: scalars, empty dims, dims of one, and sizes that divide by nothing.
pub fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let dim = || prop_oneof![1 => Just(0usize), 2 => Just(1), 12 => 2usize..8];
    prop_oneof![
        1 => Just(vec![]),
        3 => prop::collection::vec(dim(), 1),
        5 => prop::collection::vec(dim(), 2),
        3 => prop::collection::vec(dim(), 3),
        1 => prop::collection::vec(1usize..4, 4),
    ]
}

/// Shardings of a tensor with `ndim` dims that split, interleave, cut flat, pin and replicate.
pub fn shardings(mesh: Mesh, ndim: usize) -> impl Strategy<Value = Sharding> {
    sharded(mesh, ndim, Just(None))
}

/// As [`shardings`], and partial along some axes.
pub fn partial_shardings(mesh: Mesh, ndim: usize) -> impl Strategy<Value = Sharding> {
    use ReduceOp::{Avg, Max, Min, Prod, Sum};
    sharded(
        mesh,
        ndim,
        prop::sample::select(vec![Sum, Avg, Max, Min, Prod]).prop_map(Some),
    )
}

fn sharded(
    mesh: Mesh,
    ndim: usize,
    op: impl Strategy<Value = Option<ReduceOp>>,
) -> impl Strategy<Value = Sharding> {
    let axes = mesh.axes().len();
    let order = Just((0..axes).collect::<Vec<_>>()).prop_shuffle();
    let roles = prop::collection::vec((0usize..10, any::<Index>()), axes);
    let groups = prop::collection::vec(prop_oneof![3 => Just(1usize), 1 => 2usize..4], ndim);
    (order, roles, groups, op).prop_map(move |(order, roles, groups, op)| {
        let mut dims: Vec<_> = groups
            .iter()
            .map(|&groups| DimSharding {
                axes: vec![],
                groups,
            })
            .collect();
        let (mut flat, mut pins, mut partial) = (vec![], vec![], vec![]);
        for (axis, (role, index)) in order.into_iter().zip(roles) {
            match (role, op) {
                (0..5, _) if ndim > 0 => dims[index.index(ndim)].axes.push(axis),
                (5, _) => flat.push(axis),
                (6, _) => pins.push((axis, index.index(mesh.axes()[axis].size))),
                (7.., Some(op)) => partial.push((axis, op)),
                _ => {}
            }
        }
        Sharding::new(&mesh, dims)
            .and_then(|sharding| {
                sharding
                    .with_flat(flat)?
                    .with_pins(pins)?
                    .with_partial(partial)
            })
            .expect("every axis has one role")
    })
}

/// Lists of pieces that cover the tensor, many elements more than once.
pub fn covering_lists(shape: Vec<usize>) -> impl Strategy<Value = Listed> {
    let cut = (
        any::<Index>(),
        any::<Index>(),
        any::<Index>(),
        any::<bool>(),
    );
    let cuts = prop::collection::vec(cut, 0..5);
    let owners = prop::collection::vec(1u8..16, 8);
    let extra = prop::option::of((any::<Index>(), any::<Index>()));
    (cuts, owners, extra).prop_map(move |(cuts, owners, extra)| {
        let mut pieces = vec![Piece::whole(Region::whole(&shape))];
        for (which, dim, at, flat) in cuts {
            let piece = pieces.swap_remove(which.index(pieces.len()));
            pieces.extend(cut_piece(&piece, dim, at, flat));
        }
        let mut by_rank: BTreeMap<usize, Vec<Piece>> = BTreeMap::new();
        for (piece, owners) in pieces.iter().zip(owners) {
            for rank in (0..4).filter(|rank| owners >> rank & 1 == 1) {
                by_rank.entry(rank).or_default().push(piece.clone());
            }
        }
        // One more rank with a part that need not agree with the cuts.
        if let Some((dim, at)) = extra {
            let whole = Piece::whole(Region::whole(&shape));
            by_rank.insert(5, vec![cut_piece(&whole, dim, at, false).swap_remove(0)]);
        }
        Listed::new(by_rank)
    })
}

fn cut_piece(piece: &Piece, dim: Index, at: Index, flat: bool) -> Vec<Piece> {
    let region = &piece.region;
    let count = region.element_count();
    if piece.flat.is_some() || region.is_empty() || region.ndim() == 0 {
        return vec![piece.clone()];
    }
    if flat {
        let at = at.index(count + 1);
        let part = |range| Piece {
            region: region.clone(),
            flat: Some(range),
        };
        return vec![part(0..at), part(at..count)];
    }
    let dim = dim.index(region.ndim());
    let (offset, extent) = (region.offset[dim], region.extent[dim]);
    let at = at.index(extent + 1);
    vec![
        Piece::whole(region.with_dim(dim, offset, at)),
        Piece::whole(region.with_dim(dim, offset + at, extent - at)),
    ]
}

/// Ways to hold every element of a tensor: on a mesh or listed.
pub fn distributions(shape: Vec<usize>) -> impl Strategy<Value = Distribution> {
    let ndim = shape.len();
    let on_mesh = meshes().prop_flat_map(move |mesh| shardings(mesh, ndim));
    prop_oneof![
        4 => on_mesh.prop_map(Distribution::Mesh),
        1 => covering_lists(shape).prop_map(Distribution::Listed),
    ]
}

/// Tensors of one element type that are held completely, on a mesh or listed.
pub fn specs(dtype: DType) -> impl Strategy<Value = TensorSpec> {
    shapes().prop_flat_map(move |shape| {
        distributions(shape.clone()).prop_map(move |distribution| {
            TensorSpec::new(dtype, shape.clone(), distribution).expect("made for this shape")
        })
    })
}
