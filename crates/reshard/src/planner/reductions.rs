//! Who combines what, where the source is partial.

use std::{collections::HashMap, rc::Rc};

use cairn_sharding::{Region, chunk};

use super::{Planner, Work};
use crate::{
    Action, Error, Reduction, Transfer,
    atoms::{Atom, Shard, clipped},
    cut::cut_dim,
};

/// The terms of one source shard.
struct TermHolders {
    /// For each term the ranks that hold it.
    ranks: Vec<Vec<usize>>,
    /// Which term the holders that a rank stands for have.
    by_leader: HashMap<usize, usize>,
}

impl TermHolders {
    fn of(work: &Work<'_>, leader: usize) -> TermHolders {
        let mesh = work.source.sharding().map(|sharding| sharding.mesh());
        let leaders = mesh.map_or(vec![], |mesh| mesh.ranks_along(leader, &work.terms.reduced));
        let ranks = leaders
            .iter()
            .map(|&leader| work.source.replica_ranks(leader));
        TermHolders {
            ranks: ranks.collect(),
            by_leader: leaders.iter().copied().zip(0..).collect(),
        }
    }

    /// The term a rank holds.
    fn term_of(&self, work: &Work<'_>, rank: usize) -> Option<usize> {
        self.by_leader.get(&work.leader_of(rank)?).copied()
    }
}

impl Planner {
    /// Plans reductions: every box is combined at one target rank, once, and shared from there.
    pub(super) fn reduce(
        &mut self,
        work: &Work<'_>,
        shards: &[Shard],
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let mut known: HashMap<usize, Rc<TermHolders>> = HashMap::new();
        for shard in shards {
            let targets = work.value_ranks(shard);
            for atom in &shard.atoms {
                // A partial source is on a mesh, where every box has one holder.
                let leader = work.leader(atom.holders[0].rank);
                let terms = known
                    .entry(leader)
                    .or_insert_with(|| Rc::new(TermHolders::of(work, leader)))
                    .clone();
                for (owner, region) in self.owners(work, &terms, &targets, atom.region())? {
                    self.combine(work, &terms, atom, (owner, &region), &targets, actions)?;
                }
            }
        }
        Ok(())
    }

    /// Divides a box between target ranks, preferring those that hold a term of it.
    fn owners(
        &self,
        work: &Work<'_>,
        terms: &TermHolders,
        targets: &[usize],
        region: &Region,
    ) -> Result<Vec<(usize, Region)>, Error> {
        let holding = targets
            .iter()
            .copied()
            .filter(|&rank| terms.term_of(work, rank).is_some());
        let mut owners: Vec<usize> = holding.collect();
        if owners.is_empty() {
            owners = targets.to_vec();
        }
        owners.sort_by_key(|&rank| (self.load.received(rank), rank));
        let messages = work.len_bytes(region)? / self.options.min_message_bytes.max(1);
        let dim = cut_dim(region, owners.len()).filter(|_| work.divisible());
        let Some(dim) = dim else {
            return Ok(vec![(owners[0], region.clone())]);
        };
        owners.truncate(messages.clamp(1, region.extent[dim]));
        owners.sort_unstable();
        let count = owners.len();
        let part = |(index, owner)| {
            let range = chunk(region.extent[dim], count, index);
            (
                owner,
                region.with_dim(dim, region.offset[dim] + range.start, range.len()),
            )
        };
        let parts = owners.into_iter().enumerate().map(part);
        Ok(parts.filter(|(_, region)| !region.is_empty()).collect())
    }

    fn combine(
        &mut self,
        work: &Work<'_>,
        terms: &TermHolders,
        atom: &Atom,
        (owner, region): (usize, &Region),
        targets: &[usize],
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let len_bytes = work.len_bytes(region)?;
        let target_box = clipped(&atom.target, region).local;
        let own = terms.term_of(work, owner);
        let mut sources = Vec::with_capacity(terms.ranks.len());
        for (term, ranks) in terms.ranks.iter().enumerate() {
            let source = match own == Some(term) {
                true => owner,
                false => self.sender(ranks, owner),
            };
            self.load.add(source, owner, len_bytes);
            sources.push(source);
        }
        actions.push(Action::Reduce(Reduction {
            owner,
            sources,
            op: work.terms.op,
            divisor: work.terms.divisor,
            region: region.clone(),
            len_bytes,
            source_box: clipped(&atom.holders[0].part, region).local,
            target_box: target_box.clone(),
        }));
        let others = targets.iter().copied().filter(|&rank| rank != owner);
        let targets: Vec<usize> = others.collect();
        for &target in &targets {
            self.load.add(owner, target, len_bytes);
        }
        if !targets.is_empty() {
            actions.push(Action::Share(Transfer {
                source: owner,
                targets,
                region: region.clone(),
                len_bytes,
                source_box: target_box.clone(),
                target_box,
            }));
        }
        Ok(())
    }

    /// The rank that sends a term to `owner`: one of its node, then the one that sends the least.
    fn sender(&self, ranks: &[usize], owner: usize) -> usize {
        let preference = |&rank: &usize| {
            (
                self.node(rank) != self.node(owner),
                self.load.sent(rank),
                rank,
            )
        };
        ranks
            .iter()
            .copied()
            .min_by_key(preference)
            .expect("every term has a holder")
    }
}
