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

impl Planner {
    /// Plans copies: local ones where a rank has what it needs, the rest by who holds it.
    pub(super) fn copy(
        &mut self,
        work: &Work<'_>,
        shards: &[Shard],
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let mut requests: BTreeMap<Vec<usize>, Vec<Request<'_>>> = BTreeMap::new();
        for shard in shards {
            let own_leader = |rank| (rank, work.leader_of(rank));
            let targets: Vec<_> = work
                .value_ranks(shard)
                .into_iter()
                .map(own_leader)
                .collect();
            for atom in &shard.atoms {
                let leaders = atom.holders.iter().map(|holder| work.leader(holder.rank));
                let leaders: Vec<usize> = leaders.collect();
                let missing = copy_locally(work, atom, &leaders, &targets, actions)?;
                if !missing.is_empty() {
                    let request = |target| Request { atom, target };
                    let missing = missing.into_iter().map(request);
                    requests.entry(leaders).or_default().extend(missing);
                }
            }
        }
        for (leaders, requests) in requests {
            self.send(work, &leaders, requests, actions)?;
        }
        Ok(())
    }

    /// Divides requests between the ranks that can serve them all.
    fn send(
        &mut self,
        work: &Work<'_>,
        leaders: &[usize],
        requests: Vec<Request<'_>>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let replicas = leaders.iter().enumerate().flat_map(|(holder, &leader)| {
            let ranks = work.source.replica_ranks(leader).into_iter();
            ranks.map(move |rank| Candidate { rank, holder })
        });
        let candidates: Vec<Candidate> = replicas.collect();
        for (near, requests) in self.by_node(&candidates, requests) {
            let serves = |rank| near.is_none() || self.node(rank) == near;
            let serving = candidates.iter().copied();
            let serving = serving.filter(|candidate| serves(candidate.rank)).collect();
            let messages = self.divide(work, serving, &requests)?;
            for group in messages.chunk_by(Message::same_sending) {
                let Message {
                    sender,
                    atom,
                    region,
                    ..
                } = &group[0];
                let targets = group.iter().map(|message| message.target).collect();
                let transfer = work.transfer(*sender, targets, atom, region)?;
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
        requests: Vec<Request<'a>>,
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

/// Copies an atom within the ranks that hold it, and gives back those that do not.
fn copy_locally(
    work: &Work<'_>,
    atom: &Atom,
    leaders: &[usize],
    targets: &[(usize, Option<usize>)],
    actions: &mut Vec<Action>,
) -> Result<Vec<usize>, Error> {
    let mut missing = Vec::new();
    for &(rank, own_leader) in targets {
        let holder = leaders
            .iter()
            .position(|&leader| Some(leader) == own_leader);
        let Some(holder) = holder else {
            missing.push(rank);
            continue;
        };
        let copy = work.transfer(Candidate { rank, holder }, vec![rank], atom, atom.region())?;
        actions.push(Action::Copy(copy));
    }
    Ok(missing)
}
