//! From two layouts to a plan.

mod balance;
mod copies;
mod reductions;

use balance::Candidate;
use cairn_sharding::{Region, TensorSpec};

use crate::{
    Action, Error, Fill, Plan, Transfer,
    atoms::{self, Atom, Shard, clipped},
    load::Load,
    steps,
    terms::Terms,
};

/// What a plan may assume about the machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How many consecutive ranks share a node, where copies are cheaper; unknown if `None`.
    pub ranks_per_node: Option<usize>,
    /// Work is divided between replicas only into messages of at least this length.
    pub min_message_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ranks_per_node: None,
            min_message_bytes: 64 * 1024,
        }
    }
}

/// Plans the move of a tensor from one layout to another.
///
/// No more bytes move than must: a rank is never sent what it holds, and nothing is gathered on the way.
/// Of several ranks that hold a box, the target rank itself is preferred, then a rank of its node, then
/// those that send the least; large boxes are divided between them. The same input gives the same plan.
///
/// To plan many tensors whose moves run together, use one [`Planner`].
///
/// ```
/// use cairn_reshard::{Options, plan};
/// use cairn_sharding::{Mesh, TensorSpec};
///
/// let mesh = Mesh::new([("tp", 4)])?;
/// let source = TensorSpec::parse(&mesh, "f32[1024@tp, 1024]")?;
/// let target = TensorSpec::parse(&mesh, "f32[1024, 1024]")?;
/// let plan = plan(&source, &target, &Options::default())?;
/// assert_eq!(
///     plan.steps[0].to_string(),
///     "all-gather over 4 ranks {0,1,2,3}: 12.0 MiB moved, 3.0 MiB per rank"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If source and target differ in shape or element type, or the source lacks elements the target needs.
pub fn plan(source: &TensorSpec, target: &TensorSpec, options: &Options) -> Result<Plan, Error> {
    Planner::new(options.clone()).plan(source, target)
}

/// Plans several tensors, so that their moves together are balanced between ranks.
#[derive(Debug, Default)]
pub struct Planner {
    options: Options,
    load: Load,
}

/// One part of the work: a pair of layouts at one coordinate of the axes that stay partial.
struct Work<'a> {
    source: &'a TensorSpec,
    target: &'a TensorSpec,
    terms: &'a Terms,
    term: usize,
}

impl Planner {
    /// A planner that has planned nothing yet.
    pub fn new(options: Options) -> Planner {
        Planner {
            options,
            load: Load::default(),
        }
    }

    /// Plans the move of one more tensor.
    ///
    /// # Errors
    /// As [`plan`].
    pub fn plan(&mut self, source: &TensorSpec, target: &TensorSpec) -> Result<Plan, Error> {
        check_same_tensor(source, target)?;
        let terms = Terms::between(source, target);
        let shards = atoms::between(source, target)?;
        let mut actions = Vec::new();
        for term in 0..terms.kept_count {
            let work = Work {
                source,
                target,
                terms: &terms,
                term,
            };
            match terms.reduced.is_empty() {
                true => self.copy(&work, &shards, &mut actions)?,
                false => self.reduce(&work, &shards, &mut actions)?,
            }
            fill(&work, &shards, &mut actions);
        }
        Ok(Plan {
            source: source.clone(),
            target: target.clone(),
            steps: steps::group(source, actions),
        })
    }

    /// The node of a rank, if nodes are known.
    fn node(&self, rank: usize) -> Option<usize> {
        self.options.ranks_per_node.map(|count| rank / count.max(1))
    }
}

impl Work<'_> {
    /// The target ranks that get the value of a shard, ascending.
    fn value_ranks(&self, shard: &Shard) -> Vec<usize> {
        self.terms.value_ranks(self.target, shard.rank, self.term)
    }

    /// The source rank that stands for the holders of a source shard.
    fn leader(&self, rank: usize) -> usize {
        self.terms.source_leader(self.source, rank, self.term)
    }

    /// The source rank that stands for what a rank holds.
    fn leader_of(&self, rank: usize) -> Option<usize> {
        Some(self.source.replica(rank)?.leader)
    }

    fn len_bytes(&self, region: &Region) -> Result<usize, Error> {
        let (dtype, elements) = (self.source.dtype(), region.element_count());
        let len_bytes = dtype.len_bytes(elements);
        len_bytes.ok_or(Error::PartialByte { dtype, elements })
    }

    /// Whether boxes may be cut anywhere.
    fn divisible(&self) -> bool {
        self.source.dtype().bits().is_multiple_of(8)
    }

    /// The transfer of a part of an atom from a rank that is one of its holders.
    fn transfer(
        &self,
        sender: Candidate,
        targets: Vec<usize>,
        atom: &Atom,
        region: &Region,
    ) -> Result<Transfer, Error> {
        Ok(Transfer {
            source: sender.rank,
            targets,
            len_bytes: self.len_bytes(region)?,
            source_box: clipped(&atom.holders[sender.holder].part, region).local,
            target_box: clipped(&atom.target, region).local,
            region: region.clone(),
        })
    }
}

fn check_same_tensor(source: &TensorSpec, target: &TensorSpec) -> Result<(), Error> {
    if source.dtype() == target.dtype() && source.shape() == target.shape() {
        return Ok(());
    }
    Err(Error::Mismatch {
        source_dtype: source.dtype(),
        source_shape: source.shape().to_vec(),
        target_dtype: target.dtype(),
        target_shape: target.shape().to_vec(),
    })
}

/// Gives the identity to the ranks that must not count twice.
fn fill(work: &Work<'_>, shards: &[Shard], actions: &mut Vec<Action>) {
    for shard in shards {
        for target in work.terms.fill_ranks(work.target, &work.value_ranks(shard)) {
            actions.extend(shard.boxes.iter().map(|part| {
                Action::Fill(Fill {
                    target,
                    value: work.terms.identity,
                    region: part.region.clone(),
                    target_box: part.local.clone(),
                })
            }));
        }
    }
}
