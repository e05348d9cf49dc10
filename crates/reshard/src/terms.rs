//! What happens to partial values on the way.

use cairn_sharding::{Mesh, TensorSpec};
use cairn_tensor::ReduceOp;

use crate::Identity;

/// Which partial axes stay, which are reduced, and which are new.
///
/// Axes partial in both layouts of one mesh, by the same operation, are left alone: every coordinate
/// along them is moved on its own.
pub(crate) struct Terms {
    /// Axes of both meshes that stay partial.
    pub(crate) kept: Vec<usize>,
    /// How many coordinates the kept axes have.
    pub(crate) kept_count: usize,
    /// Axes of the source mesh to reduce along.
    pub(crate) reduced: Vec<usize>,
    /// How terms are combined; averages are summed.
    pub(crate) op: ReduceOp,
    /// What sums are divided by.
    pub(crate) divisor: usize,
    /// Axes of the target mesh along which all ranks get the value.
    valued: Vec<usize>,
    /// Axes of the target mesh along which coordinate 0 gets the value and the others get `identity`.
    filled: Vec<usize>,
    /// The value that changes nothing.
    pub(crate) identity: Identity,
}

impl Terms {
    pub(crate) fn between(source: &TensorSpec, target: &TensorSpec) -> Terms {
        let (from, to) = (partial(source), partial(target));
        let same_mesh = mesh(source).is_some() && mesh(source) == mesh(target);
        let kept: Vec<_> = from
            .iter()
            .filter(|pair| same_mesh && to.contains(pair))
            .collect();
        let size = |axis: usize| mesh(source).map_or(1, |mesh| mesh.axes()[axis].size);
        let reduced: Vec<_> = from.iter().filter(|pair| !kept.contains(pair)).collect();
        let introduced: Vec<_> = to.iter().filter(|pair| !kept.contains(pair)).collect();
        let averaged = reduced.iter().filter(|(_, op)| *op == ReduceOp::Avg);
        let filled = introduced.iter().filter(|(_, op)| fills(*op));
        let mut valued: Vec<usize> = target
            .sharding()
            .map_or(vec![], |sharding| sharding.free_axes().to_vec());
        valued.extend(
            introduced
                .iter()
                .filter(|(_, op)| !fills(*op))
                .map(|(axis, _)| axis),
        );
        valued.sort_unstable();
        Terms {
            kept_count: kept.iter().map(|(axis, _)| size(*axis)).product(),
            kept: kept.iter().map(|(axis, _)| *axis).collect(),
            divisor: averaged.map(|(axis, _)| size(*axis)).product(),
            op: match reduced.first() {
                None | Some((_, ReduceOp::Avg)) => ReduceOp::Sum,
                Some((_, op)) => *op,
            },
            reduced: reduced.iter().map(|(axis, _)| *axis).collect(),
            valued,
            filled: filled.map(|(axis, _)| *axis).collect(),
            identity: match introduced.first() {
                Some((_, ReduceOp::Prod)) => Identity::One,
                _ => Identity::Zero,
            },
        }
    }

    /// The source rank that stands for a cell at coordinate `term` of the kept axes.
    pub(crate) fn source_leader(&self, source: &TensorSpec, rank: usize, term: usize) -> usize {
        let leader = mesh(source).and_then(|mesh| mesh.rank_along(rank, &self.kept, term));
        leader.unwrap_or(rank)
    }

    /// The target ranks of a cell that get its value.
    pub(crate) fn value_ranks(&self, target: &TensorSpec, rank: usize, term: usize) -> Vec<usize> {
        let Some(mesh) = mesh(target) else {
            return target.replica_ranks(rank);
        };
        let base = mesh.rank_along(rank, &self.kept, term).unwrap_or(rank);
        let mut ranks = mesh.ranks_along(base, &self.valued);
        ranks.sort_unstable();
        ranks
    }

    /// The target ranks of a cell that get the identity, given those that get its value.
    pub(crate) fn fill_ranks(&self, target: &TensorSpec, values: &[usize]) -> Vec<usize> {
        let Some(mesh) = mesh(target) else {
            return Vec::new();
        };
        let along = values.iter().flat_map(|&rank| {
            let ranks = mesh.ranks_along(rank, &self.filled);
            ranks.into_iter().filter(move |&other| other != rank)
        });
        along.collect()
    }
}

/// Whether only one term gets the value when a tensor becomes partial.
fn fills(op: ReduceOp) -> bool {
    matches!(op, ReduceOp::Sum | ReduceOp::Prod)
}

fn mesh(spec: &TensorSpec) -> Option<&Mesh> {
    spec.sharding().map(|sharding| sharding.mesh())
}

fn partial(spec: &TensorSpec) -> &[(usize, ReduceOp)] {
    spec.sharding().map_or(&[], |sharding| sharding.partial())
}
