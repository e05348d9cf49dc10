//! A plan: which rank copies what to which ranks.

use cairn_sharding::{Region, TensorSpec};
use cairn_tensor::{ReduceOp, Strided};

use crate::{Collective, Cost};

/// How a tensor gets from one layout to another: plain data, to be printed, priced, compared and run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The tensor as it is.
    pub source: TensorSpec,
    /// The tensor as it will be.
    pub target: TensorSpec,
    /// What to do. Steps have no ranks in common, so they may run at the same time.
    pub steps: Vec<Step>,
}

/// What some ranks do among themselves, and no other rank with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The collective operation it amounts to.
    pub collective: Collective,
    /// The ranks that take part, ascending.
    pub ranks: Vec<usize>,
    /// What they do. Only a [`Share`](Action::Share) depends on an earlier action.
    pub actions: Vec<Action>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Copy from the source rank's source buffer.
    Copy(Transfer),
    /// Combine terms at one target rank.
    Reduce(Reduction),
    /// Copy a combined value from the target buffer of the rank that combined it.
    Share(Transfer),
    /// Write the value that changes nothing when terms are combined.
    Fill(Fill),
}

/// A box that goes from one rank to others, which all keep it in the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The rank that has it.
    pub source: usize,
    /// The ranks that get it, ascending; the source rank itself, alone, for a local copy.
    pub targets: Vec<usize>,
    /// The box in the tensor.
    pub region: Region,
    /// Its length, once.
    pub len_bytes: usize,
    /// Where it lies in the source rank's buffer.
    pub source_box: Strided,
    /// Where it lies in each target rank's buffer.
    pub target_box: Strided,
}

impl Transfer {
    /// Whether nothing leaves the rank.
    pub fn is_local(&self) -> bool {
        self.targets == [self.source]
    }
}

/// A box whose terms are combined at one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduction {
    /// The rank that combines the terms, in its target buffer.
    pub owner: usize,
    /// The ranks that have the terms, in the order in which they are combined.
    pub sources: Vec<usize>,
    /// How terms are combined; averages are summed.
    pub op: ReduceOp,
    /// What the sum is divided by for an average; 1 otherwise.
    pub divisor: usize,
    /// The box in the tensor.
    pub region: Region,
    /// Its length, once.
    pub len_bytes: usize,
    /// Where it lies in each source rank's buffer.
    pub source_box: Strided,
    /// Where it lies in the owner's target buffer.
    pub target_box: Strided,
}

/// A box of equal elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fill {
    /// The rank that writes it.
    pub target: usize,
    /// What it writes.
    pub value: Identity,
    /// The box in the tensor.
    pub region: Region,
    /// Where it lies in the rank's target buffer.
    pub target_box: Strided,
}

/// The value that changes nothing when terms are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// 0, for sums.
    Zero,
    /// 1, for products.
    One,
}

impl Plan {
    /// What the whole plan costs.
    pub fn cost(&self) -> Cost {
        Cost::of(self.steps.iter().flat_map(|step| &step.actions))
    }
}

impl Step {
    /// What the step costs.
    pub fn cost(&self) -> Cost {
        Cost::of(&self.actions)
    }
}

impl Action {
    /// The messages between ranks: (source, target, bytes); a local copy is none.
    pub fn messages(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let (sources, targets, len_bytes): (&[usize], &[usize], usize) = match self {
            Action::Copy(transfer) | Action::Share(transfer) => (
                std::slice::from_ref(&transfer.source),
                &transfer.targets,
                transfer.len_bytes,
            ),
            Action::Reduce(reduction) => (
                &reduction.sources,
                std::slice::from_ref(&reduction.owner),
                reduction.len_bytes,
            ),
            Action::Fill(_) => (&[], &[], 0),
        };
        let pairs = sources
            .iter()
            .flat_map(|&source| targets.iter().map(move |&target| (source, target)));
        pairs
            .filter(|(source, target)| source != target)
            .map(move |(source, target)| (source, target, len_bytes))
    }

    /// One of the ranks that take part.
    pub(crate) fn rank(&self) -> usize {
        match self {
            Action::Copy(transfer) | Action::Share(transfer) => transfer.source,
            Action::Reduce(reduction) => reduction.owner,
            Action::Fill(fill) => fill.target,
        }
    }
}
