//! The byte streams a rank shares with its replicas.

use super::Item;
use super::cut::{Grain, piece_bytes};
use crate::Error;
use crate::layout::Layout;
use cairn_sharding::{Distribution, Mesh, Piece, Replica, Sharding};

/// All streams of one rank.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
}

/// The pieces that one set of replicas holds, end to end.
#[derive(Debug)]
struct Stream {
    mesh: Mesh,
    free_axes: Vec<usize>,
    replica: Replica,
    ranks: Vec<usize>,
    members: Vec<Member>,
    len_bytes: u64,
}

#[derive(Debug)]
struct Member {
    tensor: usize,
    piece: Piece,
    grain: Grain,
    start: u64,
    len_bytes: u64,
}

/// Builds the streams of `rank` from the tensors it holds.
pub(super) fn streams_of(layout: &Layout, rank: usize) -> Result<Streams, Error> {
    let mut all = Streams::default();
    for (tensor, (name, spec)) in layout.iter().enumerate() {
        let Distribution::Mesh(sharding) = spec.distribution() else {
            continue;
        };
        let Some(replica) = sharding.replica(rank) else {
            continue;
        };
        let index = all.position(sharding, rank, replica);
        for piece in spec.pieces(rank) {
            let len_bytes = piece_bytes(name, spec, &piece)?;
            let grain = Grain::of(spec.dtype(), &piece, len_bytes);
            all.streams[index].push(tensor, piece, grain, len_bytes);
        }
    }
    Ok(all)
}

impl Streams {
    fn position(&mut self, sharding: &Sharding, rank: usize, replica: Replica) -> usize {
        let free_axes = sharding.free_axes();
        let known = self
            .streams
            .iter()
            .position(|s| s.free_axes == free_axes && s.mesh == *sharding.mesh());
        known.unwrap_or_else(|| {
            self.streams.push(Stream {
                mesh: sharding.mesh().clone(),
                free_axes: free_axes.to_vec(),
                replica,
                ranks: sharding.replica_ranks(rank),
                members: Vec::new(),
                len_bytes: 0,
            });
            self.streams.len() - 1
        })
    }

    /// What this rank writes of its streams. `Item::offset` counts the pieces of a tensor.
    pub(super) fn share_of_replica(&self) -> Vec<Item> {
        let mut items = Vec::new();
        for stream in &self.streams {
            let (begin, end) = (
                stream.cut(stream.replica.index),
                stream.cut(stream.replica.index + 1),
            );
            let first = stream
                .members
                .partition_point(|member| member.start + member.len_bytes <= begin);
            let inside = stream.members[first..]
                .iter()
                .take_while(|member| member.start < end);
            for (order, member) in inside.enumerate() {
                items.push(member.part(begin, end, order as u64));
            }
        }
        items
    }

    /// The ranks that write pieces of `tensor`.
    pub(super) fn writers_of(&self, tensor: usize) -> Vec<usize> {
        let mut ranks = Vec::new();
        for stream in &self.streams {
            let first = stream.members.partition_point(|m| m.tensor < tensor);
            let held = stream.members[first..]
                .iter()
                .take_while(|m| m.tensor == tensor);
            for member in held {
                ranks.extend(stream.writers_between(member.start, member.start + member.len_bytes));
            }
        }
        ranks
    }
}

impl Stream {
    fn push(&mut self, tensor: usize, piece: Piece, grain: Grain, len_bytes: u64) {
        self.members.push(Member {
            tensor,
            piece,
            grain,
            start: self.len_bytes,
            len_bytes,
        });
        self.len_bytes += len_bytes;
    }

    /// Where replica `index`'s share begins.
    fn cut(&self, index: usize) -> u64 {
        let position = u128::from(self.len_bytes) * index as u128 / self.replica.count as u128;
        let position = u64::try_from(position).expect("a share begins inside the stream");
        let member = self
            .members
            .partition_point(|m| m.start + m.len_bytes <= position);
        match self.members.get(member) {
            Some(m) => m.start + m.grain.nearest_cut(position - m.start, m.len_bytes),
            None => self.len_bytes,
        }
    }

    fn writers_between(&self, begin: u64, end: u64) -> Vec<usize> {
        if self.replica.count == 1 {
            return self.ranks.clone();
        }
        // Cuts ascend: the replicas whose share meets begin..end stand next to each other.
        let first = partition(self.replica.count, |i| self.cut(i + 1) <= begin);
        (first..self.replica.count)
            .take_while(|i| self.cut(*i) < end)
            .filter(|i| self.cut(*i) < self.cut(i + 1))
            .map(|i| self.ranks[i])
            .collect()
    }
}

impl Member {
    fn part(&self, begin: u64, end: u64, order: u64) -> Item {
        let first = begin.saturating_sub(self.start);
        let last = (end - self.start).min(self.len_bytes);
        Item {
            tensor: self.tensor,
            piece: self.grain.part(&self.piece, first, last),
            offset: order,
            len_bytes: last - first,
        }
    }
}

/// The first index below `count` for which `before` is false.
fn partition(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
