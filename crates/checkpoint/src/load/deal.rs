//! Who reads what when processes load together, as plain data that every one of them works out alone.
//!
//! What one peer alone needs, it reads itself. A block that several need is read by one of those, and the reader is always the one
//! with the least to read so far. All follow the same rule over the same list, so all know who reads what:
//!
//! ```text
//! file of writer 0:   │ 0 1 2 3 │ 0 1 2 3 │ 0 1 2 3 │ 2 │      the peers that need it
//!                     │ peer 0  │ peer 1  │ peer 3  │ 2 │      the peer that reads it
//! ```

use crate::Error;
use crate::checksum::{BLOCK_BYTES, hash64};
use crate::layout::Layout;
use crate::peers::Peers;
use crate::plan::{Chunk, FilePlan, Routes, open_all};
use crate::pool::CHUNK_BYTES;
use crate::source::Source;
use crate::target::Wanted;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The most bytes on their way between the peers of one machine.
pub(crate) const MAX_EXCHANGE_BYTES: usize = 64 << 20;

/// The most bytes that are handed over at once. Smaller than a read of one's own: others wait for it, and it stays in a shared cache.
const MAX_SHARED_BYTES: usize = 2 << 20;

/// A set of peers, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Members(pub(crate) u64);

impl Members {
    pub(crate) fn of(peers: impl Iterator<Item = usize>) -> Self {
        Self(peers.fold(0, |bits, peer| bits | 1 << peer))
    }

    pub(crate) fn contains(self, peer: usize) -> bool {
        self.0 >> peer & 1 == 1
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..u64::BITS as usize).filter(move |peer| self.contains(*peer))
    }
}

/// A chunk of a file that one peer reads for all that need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) reader: usize,
    pub(crate) wanted_by: Members,
    /// Index of the file in [`Deal::files`].
    pub(crate) file: usize,
    /// Index of the chunk, the same in every peer's plan of the file.
    pub(crate) chunk: usize,
}

/// Who reads what.
#[derive(Debug, Default)]
pub(crate) struct Deal {
    /// For each file, what each peer needs of it; `None` for peers that do not take part.
    pub(crate) files: Vec<Vec<Option<FilePlan>>>,
    /// Everything that is read, in the order in which it is handed over.
    pub(crate) shares: Vec<Share>,
    /// For each group of peers, a number that tells what they load from what: they must agree on it.
    pub(crate) groups: BTreeMap<u64, u64>,
}

impl Deal {
    /// Deals what the peers need for those `targets` of `wanted` that can be shared, and returns the others.
    ///
    /// Target `i` of another peer is its part of the tensor of target `i` here.
    pub(crate) fn new(
        source: &dyn Source,
        wanted: &[Wanted],
        targets: impl Iterator<Item = usize>,
        peers: &Peers,
    ) -> Result<(Self, Vec<usize>), Error> {
        let (groups, alone) = groups(wanted, targets, peers);
        let mut deal = Self::default();
        for (members, targets) in groups {
            deal.add_group(source, wanted, members, &targets, peers)?;
        }
        Ok((deal, alone))
    }

    /// What `peer` needs of the chunk of `share`.
    pub(crate) fn view(&self, share: &Share, peer: usize) -> Option<(&FilePlan, &Chunk)> {
        let plan = self.files[share.file][peer].as_ref()?;
        Some((plan, &plan.chunks[share.chunk]))
    }

    /// What `reader` reads and others need too, in order.
    pub(crate) fn shared_by(&self, reader: usize) -> impl Iterator<Item = &Share> {
        let shares = self.shares.iter();
        shares.filter(move |share| share.reader == reader && share.wanted_by.len() > 1)
    }

    /// What only `peer` needs.
    pub(crate) fn own_of(&self, peer: usize) -> impl Iterator<Item = &Share> {
        let shares = self.shares.iter();
        shares.filter(move |share| share.reader == peer && share.wanted_by.len() == 1)
    }

    fn add_group(
        &mut self,
        source: &dyn Source,
        wanted: &[Wanted],
        members: Members,
        targets: &[usize],
        peers: &Peers,
    ) -> Result<(), Error> {
        let mut routes = BTreeMap::new();
        for peer in members.iter() {
            let rank = peers.ranks[peer];
            let theirs: Vec<Wanted> = targets
                .iter()
                .map(|target| match peer == peers.index {
                    true => wanted[*target].clone(),
                    false => wanted[*target].of_rank(rank),
                })
                .collect();
            let numbered = targets.iter().copied().zip(&theirs);
            routes.insert(peer, Routes::new(source, numbered)?.by_file);
        }
        let first = self.files.len();
        let numbers: BTreeSet<usize> = routes.values().flat_map(BTreeMap::keys).copied().collect();
        let numbers: Vec<usize> = numbers.into_iter().collect();
        let opened = open_all(source, &numbers)?;
        for (number, file) in numbers.into_iter().zip(opened) {
            let mut views: Vec<Option<FilePlan>> = peers.ranks.iter().map(|_| None).collect();
            for (peer, by_file) in &mut routes {
                let transfers = by_file.remove(&number).unwrap_or_default();
                views[*peer] = Some(FilePlan::new(file.clone(), transfers));
            }
            self.files.push(views);
        }
        let spans = self.files[first..].iter().map(|views| segments(views));
        let dealt = dealt(spans.collect(), peers.ranks.len());
        for (index, cuts) in dealt.into_iter().enumerate() {
            self.add_file(first + index, cuts);
        }
        let hash = group_hash(wanted, targets, &self.files[first..], peers);
        self.groups.insert(members.0, hash);
        Ok(())
    }

    fn add_file(&mut self, file: usize, cuts: Vec<Cut>) {
        let chunks: Vec<Chunk> = cuts.iter().map(|cut| cut.chunk.clone()).collect();
        for view in self.files[file].iter_mut().flatten() {
            view.read_in(chunks.clone());
        }
        let share = |(chunk, cut): (usize, Cut)| Share {
            reader: cut.reader,
            wanted_by: cut.wanted_by,
            file,
            chunk,
        };
        self.shares.extend(cuts.into_iter().enumerate().map(share));
    }
}

/// Targets by the peers that hold a part of the same tensor, and the targets that nobody shares.
fn groups(
    wanted: &[Wanted],
    targets: impl Iterator<Item = usize>,
    peers: &Peers,
) -> (BTreeMap<Members, Vec<usize>>, Vec<usize>) {
    let mut groups: BTreeMap<Members, Vec<usize>> = BTreeMap::new();
    let mut alone = Vec::new();
    let mut seen = BTreeSet::new();
    for target in targets {
        let Wanted {
            name, spec, rank, ..
        } = &wanted[target];
        let holders = (0..peers.ranks.len()).filter(|peer| spec.holds(peers.ranks[*peer]));
        let members = Members::of(holders);
        // Of a listed tensor a rank may know its own pieces only.
        let known = spec.sharding().is_some() && Some(*rank) == peers.rank();
        if known && members.len() > 1 && seen.insert(name) {
            groups.entry(members).or_default().push(target);
        } else {
            alone.push(target);
        }
    }
    (groups, alone)
}

/// A stretch of blocks and the peers that need it.
type Segment = (Range<usize>, Members);

/// The blocks that anyone needs of a file, in order.
fn segments(views: &[Option<FilePlan>]) -> Vec<Segment> {
    let mut changes: BTreeMap<usize, u64> = BTreeMap::new();
    for (peer, view) in views.iter().enumerate() {
        for span in view.iter().flat_map(FilePlan::blocks) {
            *changes.entry(span.start).or_default() ^= 1 << peer;
            *changes.entry(span.end).or_default() ^= 1 << peer;
        }
    }
    let mut segments: Vec<Segment> = Vec::new();
    let mut current = (0, Members(0));
    for (at, change) in changes {
        let (start, members) = current;
        if members.len() > 0 && start < at {
            segments.push((start..at, members));
        }
        current = (at, Members(members.0 ^ change));
    }
    segments
}

/// A chunk with the peers that need it and the one that reads it.
struct Cut {
    chunk: Chunk,
    wanted_by: Members,
    reader: usize,
}

/// Deals the segments of all files.
fn dealt(files: Vec<Vec<Segment>>, peers: usize) -> Vec<Vec<Cut>> {
    let mut load = vec![0; peers];
    let mut shared_bytes = 0;
    for (range, members) in files.iter().flatten() {
        match (members.len(), members.iter().next()) {
            (1, Some(only)) => load[only] += range.len(),
            _ => shared_bytes += range.len(),
        }
    }
    let shared_len = shared_len(shared_bytes, peers);
    let mut deal = |(range, members): Segment| {
        let shared = members.len() > 1;
        let len = if shared { shared_len } else { CHUNK_BYTES };
        let cut = |chunk: Chunk| {
            let reader = members.iter().min_by_key(|peer| load[*peer]);
            let reader = reader.expect("a segment is needed by someone");
            if shared {
                load[reader] += chunk.len;
            }
            Cut {
                chunk,
                wanted_by: members,
                reader,
            }
        };
        Chunk::cut(&range, len).map(cut).collect::<Vec<Cut>>()
    };
    let mut deal_file = |segments: Vec<Segment>| segments.into_iter().flat_map(&mut deal).collect();
    files.into_iter().map(&mut deal_file).collect()
}

/// The bytes handed over at once: even of a small load each peer reads several times, and it is never more than there is memory for.
fn shared_len(shared_bytes: usize, peers: usize) -> usize {
    let most = shared_len_limit(peers);
    let fair = shared_bytes / (16 * peers);
    fair.next_multiple_of(BLOCK_BYTES).clamp(BLOCK_BYTES, most)
}

/// The most bytes handed over at once between this many peers.
pub(crate) fn shared_len_limit(peers: usize) -> usize {
    let quarter = MAX_EXCHANGE_BYTES / (4 * peers);
    (quarter / BLOCK_BYTES * BLOCK_BYTES).clamp(BLOCK_BYTES, MAX_SHARED_BYTES)
}

/// Covers everything from which the deal of a group follows: tensors, files and ranks.
fn group_hash(
    wanted: &[Wanted],
    targets: &[usize],
    files: &[Vec<Option<FilePlan>>],
    peers: &Peers,
) -> u64 {
    let tensor = |target: &usize| {
        let Wanted { name, spec, .. } = &wanted[*target];
        (name.clone(), spec.clone())
    };
    let tensors = Layout::new(targets.iter().map(tensor).collect(), BTreeMap::new());
    let mut text = format!("{:?}\n{}", peers.ranks, tensors.hash());
    for plan in files.iter().flat_map(|views| views.iter().flatten().next()) {
        text.push_str(&format!("\n{} {}", plan.file.key, plan.file.reader.len()));
    }
    hash64(text.as_bytes())
}
