//! Which collective operation a step amounts to.

use std::{collections::BTreeSet, fmt};

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

    fn of_copies<'a>(actions: &'a [Action]) -> Collective {
        let moved = |action: &'a Action| match action {
            Action::Copy(transfer) if !transfer.is_local() => Some(transfer),
            _ => None,
        };
        let moves: Vec<&Transfer> = actions.iter().filter_map(moved).collect();
        let senders: BTreeSet<usize> = moves.iter().map(|transfer| transfer.source).collect();
        let receivers: BTreeSet<usize> = moves
            .iter()
            .flat_map(|transfer| transfer.targets.iter().copied())
            .collect();
        // Whether everything that is sent goes to every receiver.
        let same_to_all = moves.iter().all(|transfer| {
            let others = receivers.iter().filter(|&&rank| rank != transfer.source);
            others.eq(&transfer.targets)
        });
        match (senders.len(), receivers.len()) {
            (1, 1) => Collective::PointToPoint,
            (1, _) if same_to_all => Collective::Broadcast,
            (1, _) => Collective::Scatter,
            (_, 1) => Collective::Gather,
            _ if same_to_all => Collective::AllGather,
            _ => Collective::AllToAll,
        }
    }
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
