//! The suite that every kind of communicator passes.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a suite of tests, with small numbers"
)]

mod oracle;
mod wires;

use crate::{
    Background, Communicator, Error, Tree, along, broadcast_tree, broadcast_value, gather_values,
    redistribute,
};
use cairn_reshard::{Options, plan};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_tensor::{DType, ReduceOp};
use oracle::{Numbers, floats, of_floats};
use std::collections::BTreeMap;
use std::sync::Arc;
pub use wires::wired;

/// What one rank does.
pub type Body = dyn Fn(&Arc<dyn Communicator>) + Sync;

/// Runs a body on every rank of a world of some size, and panics if one of them does.
pub type World<'a> = &'a dyn Fn(usize, &Body);

/// The sizes of groups that are tried.
const SIZES: [usize; 5] = [1, 2, 3, 5, 8];

/// Puts a kind of communicator through everything that the trait promises of calls that all make.
pub fn conformance(world: World) {
    for size in SIZES {
        world(size, &reductions);
        world(size, &parts);
        world(size, &messages);
        world(size, &groups);
        world(size, &structures);
        world(size, &behind);
    }
    world(6, &meshes);
    world(4, &layouts);
    world(3, &lengths);
}

/// Sums, means and extremes, of lengths that take one way and the other.
fn reductions(group: &Arc<dyn Communicator>) {
    for (seed, len) in [0, 1, 7, 4_099, 30_011].into_iter().enumerate() {
        let terms: Vec<Vec<f32>> = (0..group.size())
            .map(|rank| Numbers::new(seed, rank).take(len).collect())
            .collect();
        for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max] {
            let expected: Vec<f32> = (0..len)
                .map(|index| oracle::combine(op, terms.iter().map(|term| term[index])))
                .collect();
            let mut bytes = of_floats(&terms[group.rank()]);
            group.all_reduce(DType::F32, op, &mut bytes).unwrap();
            assert_eq!(floats(&bytes), expected, "{op:?} of {len}");
            let lens: Vec<usize> = uneven(len, group.size()).map(|part| 4 * part).collect();
            let start: usize = lens[..group.rank()].iter().sum();
            let mut part = vec![0; lens[group.rank()]];
            let own = of_floats(&terms[group.rank()]);
            group
                .reduce_scatter(DType::F32, op, &own, &lens, &mut part)
                .unwrap();
            let mine = &expected[start / 4..(start + part.len()) / 4];
            assert_eq!(floats(&part), mine, "{op:?} of {len}, in parts");
        }
    }
    // 256 + 1 is no bf16: only a sum that is rounded once keeps what the ones come to.
    let value: u16 = if group.rank() == 0 { 0x4380 } else { 0x3f80 };
    let mut bytes = value.to_le_bytes();
    group
        .all_reduce(DType::Bf16, ReduceOp::Sum, &mut bytes)
        .unwrap();
    let sum = f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16);
    let exact = 255.0 + group.size() as f32;
    assert!((sum - exact).abs() <= 1.0, "{sum} for {exact}");
}

/// Cuts `len` into parts of different lengths, some of them empty.
fn uneven(len: usize, size: usize) -> impl Iterator<Item = usize> {
    let cut = move |rank: usize| len * rank * rank / (size * size);
    (0..size).map(move |rank| cut(rank + 1) - cut(rank))
}

/// Gathers and exchanges of uneven parts.
fn parts(group: &Arc<dyn Communicator>) {
    let (rank, size) = (group.rank(), group.size());
    let lens: Vec<usize> = uneven(50_021, size).collect();
    let mut all = vec![0; 50_021];
    let own = vec![rank as u8 + 1; lens[rank]];
    group.all_gather(&own, &lens, &mut all).unwrap();
    let expected: Vec<u8> = (0..size)
        .flat_map(|other| vec![other as u8 + 1; lens[other]])
        .collect();
    assert_eq!(all, expected);

    let len = |from: usize, to: usize| (from * 7 + to * 3) % 11 * 100;
    let byte = |from: usize, to: usize| (from * 16 + to) as u8;
    let send_lens: Vec<usize> = (0..size).map(|to| len(rank, to)).collect();
    let receive_lens: Vec<usize> = (0..size).map(|from| len(from, rank)).collect();
    let sent: Vec<u8> = (0..size)
        .flat_map(|to| vec![byte(rank, to); len(rank, to)])
        .collect();
    let mut received = vec![0; receive_lens.iter().sum()];
    group
        .all_to_all(&sent, &send_lens, &mut received, &receive_lens)
        .unwrap();
    let expected: Vec<u8> = (0..size)
        .flat_map(|from| vec![byte(from, rank); len(from, rank)])
        .collect();
    assert_eq!(received, expected);
    for root in 0..size {
        let mut bytes = vec![if rank == root { 9 } else { 0 }; 1000 * root];
        group.broadcast(root, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 9));
    }
    group.barrier().unwrap();
}

/// Messages around a ring, with tags that are received in another order.
fn messages(group: &Arc<dyn Communicator>) {
    let (rank, size) = (group.rank(), group.size());
    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    for tag in 0..3 {
        group.send(next, tag, &[rank as u8, tag as u8]).unwrap();
    }
    group.send(next, 1, &[rank as u8, 7]).unwrap();
    for (tag, byte) in [(2, 2), (1, 1), (0, 0), (1, 7)] {
        let mut bytes = [0; 2];
        group.receive(last, tag, &mut bytes).unwrap();
        assert_eq!(bytes, [last as u8, byte]);
    }
    assert!(matches!(
        group.send(size, 0, &[]),
        Err(Error::NoRank { .. })
    ));
}

/// Groups of groups, which know where their ranks are in the world.
fn groups(group: &Arc<dyn Communicator>) {
    let (rank, size) = (group.rank(), group.size());
    let half = group
        .split((rank % 2) as u64, (size - rank) as u64)
        .unwrap();
    let mut expected: Vec<usize> = (0..size).filter(|other| other % 2 == rank % 2).collect();
    expected.reverse();
    assert_eq!(half.world_ranks(), expected);
    assert_eq!(half.world_ranks()[half.rank()], rank);
    let mut sum = (rank as i64).to_le_bytes();
    half.all_reduce(DType::I64, ReduceOp::Sum, &mut sum)
        .unwrap();
    assert_eq!(
        i64::from_le_bytes(sum),
        expected.iter().sum::<usize>() as i64
    );
    let alone = half.split(half.rank() as u64, 0).unwrap();
    assert_eq!(alone.world_ranks(), [rank]);
    alone.barrier().unwrap();
}

/// Nested structures.
fn structures(group: &Arc<dyn Communicator>) {
    let tensor = |len: usize| Tree::Tensor {
        dtype: DType::U8,
        shape: vec![len, 1],
        bytes: vec![5; len],
    };
    let list = Tree::List(vec![
        tensor(0),
        Tree::Value(serde_json::json!({"tensor": null})),
    ]);
    let map = BTreeMap::from([("é".to_string(), tensor(3)), ("list".to_string(), list)]);
    let tree = Tree::Map(map);
    let root = group.size() - 1;
    let given = (group.rank() == root).then_some(&tree);
    assert_eq!(broadcast_tree(group.as_ref(), root, given).unwrap(), tree);
    let none: Option<&String> = None;
    assert!(broadcast_value::<String>(group.as_ref(), root, none).is_err());
    let names = gather_values(group.as_ref(), &format!("rank {}", group.rank())).unwrap();
    let expected: Vec<String> = (0..group.size())
        .map(|rank| format!("rank {rank}"))
        .collect();
    assert_eq!(names, expected);
}

/// Calls in the background, beside calls in front.
fn behind(group: &Arc<dyn Communicator>) {
    let background = Background::new(group.as_ref()).unwrap();
    let pending: Vec<_> = (0..5_u8)
        .map(|number| background.all_reduce(DType::U8, ReduceOp::Max, vec![number; 10]))
        .collect();
    group.barrier().unwrap();
    let lens = vec![1; group.size()];
    let gathered = background.all_gather(vec![group.rank() as u8], lens);
    for (number, pending) in pending.into_iter().enumerate() {
        assert_eq!(pending.wait().unwrap(), vec![number as u8; 10]);
    }
    let expected: Vec<u8> = (0..group.size() as u8).collect();
    assert_eq!(gathered.wait().unwrap(), expected);
}

/// Groups along the axes of a mesh that leaves some ranks out.
fn meshes(world: &Arc<dyn Communicator>) {
    let mesh = Mesh::new([("dp", 2), ("tp", 2)]).unwrap();
    let rank = world.rank();
    let expect = |axis: &str, expected: [[usize; 2]; 2]| {
        let group = along(world.as_ref(), &mesh, axis).unwrap();
        let own = expected.iter().find(|ranks| ranks.contains(&rank));
        let own = own.map_or(vec![rank], |ranks| ranks.to_vec());
        assert_eq!(group.world_ranks(), own, "{axis}");
    };
    expect("dp", [[0, 2], [1, 3]]);
    expect("tp", [[0, 1], [2, 3]]);
    let large = Mesh::new([("dp", 7)]).unwrap();
    assert!(matches!(
        along(world.as_ref(), &large, "dp"),
        Err(Error::NoRank { .. })
    ));
    assert!(along(world.as_ref(), &mesh, "pp").is_err());
}

/// A tensor between layouts, against the plan run by one.
fn layouts(group: &Arc<dyn Communicator>) {
    let mesh = Mesh::new([("a", 2), ("b", 2)]).unwrap();
    let texts = [
        "f32[5@a, 6@b]",
        "f32[5, 6@a+b]",
        "f32[5@b, 6]",
        "f32[5, 6]",
        "f32[5@a, 6 | sum(b)]",
    ];
    let spec = |text: &&str| {
        TensorSpec::parse(&mesh, text).unwrap_or_else(|error| panic!("{text}: {error}"))
    };
    for source in &texts {
        for target in &texts[..4] {
            let plan = plan(&spec(source), &spec(target), &Options::default()).unwrap();
            let held: Vec<Vec<u8>> = (0..4)
                .map(|rank| {
                    let count = plan.source.local_element_count(rank);
                    let values: Vec<f32> =
                        Numbers::new(1, if source.contains("sum") { rank } else { 0 })
                            .take(count)
                            .collect();
                    of_floats(&values)
                })
                .collect();
            let mut expected = vec![Vec::new(); 4];
            cairn_reshard::execute(&plan, &held, &mut expected).unwrap();
            let moved = redistribute(group.as_ref(), &plan, &held[group.rank()]).unwrap();
            assert_eq!(moved, expected[group.rank()], "{source} → {target}");
        }
    }
}

/// Buffers that do not fit are refused before anybody waits.
fn lengths(group: &Arc<dyn Communicator>) {
    let refused = group.all_gather(&[1], &[1, 1], &mut [0; 2]);
    assert!(matches!(refused, Err(Error::Length { .. })));
    let refused = group.all_gather(&[1], &[1, 1, 1], &mut [0; 2]);
    assert!(matches!(refused, Err(Error::Length { .. })));
    let refused = group.reduce_scatter(DType::U8, ReduceOp::Sum, &[1; 3], &[1; 3], &mut [0; 2]);
    assert!(matches!(refused, Err(Error::Length { .. })));
    group.barrier().unwrap();
}
