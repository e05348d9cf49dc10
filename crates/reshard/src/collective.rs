//! Which collective operation a step amounts to.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
};

use cairn_sharding::Region;

use crate::{Action, Transfer};

/// A name for what ranks do together, read off who sends what to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collective {
    /// Every rank has what it needs, and needs all it has.
    Local,
    /// Every rank has what it needs, and more.
    Slice,
    /// One rank sends to one other.
    PointToPoint,
    /// One rank sends the same to several.
    Broadcast,
    /// One rank sends different parts to several.
    Scatter,
    /// Several ranks send to one.
    Gather,
    /// Several ranks each send the same to all others.
    AllGather,
    /// Several ranks send different parts to several.
    AllToAll,
    /// Terms are combined at one rank.
    Reduce,
    /// Terms are combined, each part at another rank.
    ReduceScatter,
    /// Terms are combined, and all ranks get the result.
    AllReduce,
}

impl Collective {
    /// Names what connected ranks do; `uses_all` says whether the step reads all that its ranks hold.
    pub(crate) fn of(actions: &[Action], uses_all: bool) -> Collective {
        if actions
            .iter()
            .all(|action| action.messages().next().is_none())
        {
            return match uses_all {
                true => Collective::Local,
                false => Collective::Slice,
            };
        }
        let owner = |action: &Action| match action {
            Action::Reduce(reduction) => Some(reduction.owner),
            _ => None,
        };
        let owners: BTreeSet<usize> = actions.iter().filter_map(owner).collect();
        let shares = actions
            .iter()
            .any(|action| matches!(action, Action::Share(_)));
        match owners.len() {
            0 => Collective::of_copies(actions),
            _ if shares => Collective::AllReduce,
            1 => Collective::Reduce,
            _ => Collective::ReduceScatter,
        }
    }

    /// Whether every rank works alone.
    pub fn moves_nothing(self) -> bool {
        matches!(self, Collective::Local | Collective::Slice)
    }

    fn of_copies(actions: &[Action]) -> Collective {
        let copies = actions.iter().filter_map(|action| match action {
            Action::Copy(transfer) => Some(transfer),
            _ => None,
        });
        let (kept, moved): (Vec<&Transfer>, Vec<&Transfer>) =
            copies.partition(|transfer| transfer.is_local());
        let senders: BTreeSet<usize> = moved.iter().map(|transfer| transfer.source).collect();
        let targets = moved.iter().flat_map(|transfer| &transfer.targets);
        let receivers: BTreeSet<usize> = targets.copied().collect();
        // Whether everything that is sent goes to every receiver.
        let same_to_all = || {
            moved.iter().all(|transfer| {
                let others = receivers.iter().filter(|&&rank| rank != transfer.source);
                others.eq(&transfer.targets)
            })
        };
        match (senders.len(), receivers.len()) {
            (1, 1) => Collective::PointToPoint,
            (1, _) if same_to_all() => Collective::Broadcast,
            (1, _) => Collective::Scatter,
            (_, 1) => Collective::Gather,
            _ if same_to_all() && keep_what_they_send(&kept, &moved, &receivers) => {
                Collective::AllGather
            }
            _ => Collective::AllToAll,
        }
    }
}

/// Whether senders that also receive keep what they send, so that all receivers end up with the same.
fn keep_what_they_send(
    kept: &[&Transfer],
    moved: &[&Transfer],
    receivers: &BTreeSet<usize>,
) -> bool {
    let mut kept_by: HashMap<usize, Vec<&Region>> = HashMap::new();
    for transfer in kept {
        kept_by
            .entry(transfer.source)
            .or_default()
            .push(&transfer.region);
    }
    let mut both = moved
        .iter()
        .filter(|transfer| receivers.contains(&transfer.source));
    both.all(|transfer| {
        let regions = kept_by.get(&transfer.source).into_iter().flatten();
        regions
            .into_iter()
            .any(|region| region.contains(&transfer.region))
    })
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Collective::Local => "local",
            Collective::Slice => "slice",
            Collective::PointToPoint => "p2p",
            Collective::Broadcast => "broadcast",
            Collective::Scatter => "scatter",
            Collective::Gather => "gather",
            Collective::AllGather => "all-gather",
            Collective::AllToAll => "all-to-all",
            Collective::Reduce => "reduce",
            Collective::ReduceScatter => "reduce-scatter",
            Collective::AllReduce => "all-reduce",
        })
    }
}
