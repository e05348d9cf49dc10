//! Who sends what, where nothing is reduced.

use std::collections::BTreeMap;

use super::{
    Planner, Work,
    balance::{Candidate, Message, Request},
};
use crate::{
    Action, Error,
    atoms::{Atom, Shard},
};

/// A box that some ranks need and do not have.
struct Demand<'a> {
    atom: &'a Atom,
    targets: Vec<usize>,
}

impl Planner {
    /// Plans copies: local ones where a rank has what it needs, the rest by who holds it.
    pub(super) fn copy(
        &mut self,
        work: &Work<'_>,
        shards: &[Shard],
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let mut demands: BTreeMap<Vec<usize>, Vec<Demand<'_>>> = BTreeMap::new();
        for shard in shards {
            let targets = work.value_ranks(shard);
            let own: Vec<_> = targets.iter().map(|&rank| work.leader_of(rank)).collect();
            for atom in &shard.atoms {
                let leaders = atom.holders.iter().map(|holder| work.leader(holder.rank));
                let leaders: Vec<usize> = leaders.collect();
                let mut missing = Vec::new();
                for (&rank, own) in targets.iter().zip(&own) {
                    match leaders.iter().position(|leader| Some(*leader) == *own) {
                        None => missing.push(rank),
                        Some(holder) => {
                            let copy =
                                work.transfer((rank, holder), vec![rank], atom, atom.region())?;
                            actions.push(Action::Copy(copy));
                        }
                    }
                }
                if !missing.is_empty() {
                    let targets = missing;
                    demands
                        .entry(leaders)
                        .or_default()
                        .push(Demand { atom, targets });
                }
            }
        }
        for (leaders, demands) in demands {
            self.send(work, &leaders, &demands, actions)?;
        }
        Ok(())
    }

    /// Divides demands between the ranks that hold them all.
    fn send(
        &mut self,
        work: &Work<'_>,
        leaders: &[usize],
        demands: &[Demand<'_>],
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let replicas = leaders.iter().enumerate().flat_map(|(holder, &leader)| {
            let ranks = work.source.replica_ranks(leader).into_iter();
            ranks.map(move |rank| Candidate { rank, holder })
        });
        let candidates: Vec<Candidate> = replicas.collect();
        let requests = demands.iter().flat_map(|demand| {
            let request = |&target| Request {
                atom: demand.atom,
                target,
            };
            demand.targets.iter().map(request)
        });
        for (near, requests) in self.by_node(&candidates, requests) {
            let serving = |candidate: &&Candidate| {
                near.is_none_or(|near| self.node(candidate.rank) == Some(near))
            };
            let candidates = candidates.iter().filter(serving).copied().collect();
            let messages = self.divide(work, candidates, &requests)?;
            for group in messages.chunk_by(Message::same_sending) {
                let Message {
                    sender,
                    atom,
                    region,
                    ..
                } = &group[0];
                let targets = group.iter().map(|message| message.target).collect();
                let transfer =
                    work.transfer((sender.rank, sender.holder), targets, atom, region)?;
                actions.push(Action::Copy(transfer));
            }
        }
        Ok(())
    }

    /// Groups requests by the node whose candidates serve them: the target's own if it has any, or else
    /// all (`None`).
    fn by_node<'a>(
        &self,
        candidates: &[Candidate],
        requests: impl Iterator<Item = Request<'a>>,
    ) -> BTreeMap<Option<usize>, Vec<Request<'a>>> {
        let mut nodes: Vec<Option<usize>> = candidates
            .iter()
            .map(|candidate| self.node(candidate.rank))
            .collect();
        nodes.sort_unstable();
        let mut groups: BTreeMap<_, Vec<Request<'a>>> = BTreeMap::new();
        for request in requests {
            let node = self.node(request.target);
            let near = node.filter(|_| nodes.binary_search(&node).is_ok());
            groups.entry(near).or_default().push(request);
        }
        groups
    }
}
