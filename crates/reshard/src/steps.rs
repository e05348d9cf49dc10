//! Actions grouped by the ranks that are connected through them.

use std::collections::{BTreeMap, HashMap};

use cairn_sharding::TensorSpec;

use crate::{Action, Collective, Step};

/// Groups actions into steps: ranks that exchange something are in the same step; ranks that exchange
/// nothing are in one step with all that do the same.
pub(crate) fn group(source: &TensorSpec, actions: Vec<Action>) -> Vec<Step> {
    let mut joined = Joined::default();
    for action in &actions {
        for (source, target, _) in action.messages() {
            joined.join(source, target);
        }
    }
    let mut parts: BTreeMap<usize, (Vec<usize>, Vec<Action>)> = BTreeMap::new();
    for rank in joined.ranks() {
        parts.entry(joined.first(rank)).or_default().0.push(rank);
    }
    for action in actions {
        let first = joined.first(action.rank());
        let (ranks, part) = parts.entry(first).or_default();
        part.push(action);
        if ranks.is_empty() {
            ranks.push(first);
        }
    }
    let mut steps: Vec<Step> = Vec::new();
    for (first, (ranks, actions)) in parts {
        let collective = Collective::of(&actions, uses_all(source, first, &actions));
        let alike = |step: &&mut Step| collective.moves_nothing() && step.collective == collective;
        match steps.iter_mut().find(alike) {
            Some(step) => {
                step.ranks.extend(ranks);
                step.actions.extend(actions);
            }
            None => steps.push(Step {
                collective,
                ranks,
                actions,
            }),
        }
    }
    steps
}

/// Whether the actions of a single rank read all it holds, or nothing.
fn uses_all(source: &TensorSpec, rank: usize, actions: &[Action]) -> bool {
    let read = |action: &Action| match action {
        Action::Copy(transfer) => transfer.region.element_count(),
        Action::Reduce(reduction) => reduction.region.element_count(),
        Action::Share(_) | Action::Fill(_) => 0,
    };
    let read: usize = actions.iter().map(read).fold(0, usize::saturating_add);
    read == 0 || read == source.local_element_count(rank)
}

/// Ranks that are connected, each set known by its smallest rank.
#[derive(Default)]
struct Joined {
    parents: HashMap<usize, usize>,
}

impl Joined {
    fn first(&mut self, rank: usize) -> usize {
        let mut first = rank;
        while let Some(&parent) = self.parents.get(&first).filter(|&&parent| parent != first) {
            first = parent;
        }
        // Shorten the way for the next time.
        let mut at = rank;
        while at != first {
            at = self.parents.insert(at, first).unwrap_or(first);
        }
        first
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.first(a), self.first(b));
        self.parents.insert(a.max(b), a.min(b));
    }

    /// All ranks that were joined, ascending.
    fn ranks(&self) -> Vec<usize> {
        let mut ranks: Vec<usize> = self.parents.keys().copied().collect();
        ranks.extend(self.parents.values());
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}
