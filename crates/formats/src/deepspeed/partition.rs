//! What one rank keeps of the optimizer: a flat buffer for every group of parameters and every kind of thing kept of them.

use super::WEIGHT;
use super::saved::{self, Saved};
use super::stream::Run;
use crate::model::{Model, Tensor};
use crate::pickle::Node;
use crate::{Error, plain};
use cairn_store::Store;
use serde_json::Value;
use std::collections::BTreeMap;

/// The part of one rank.
pub(super) struct Partition {
    /// How far ZeRO cuts: from 3 on each parameter over all ranks, before that each group.
    pub(super) stage: i64,
    /// How many ranks it says that there are.
    pub(super) ranks: usize,
    /// Kind → its elements, for every group.
    pub(super) groups: Vec<BTreeMap<String, Run>>,
    /// Kind → what is one for a whole group, such as the number of steps.
    pub(super) scalars: Vec<BTreeMap<String, Scalar>>,
    /// Elements left free behind every parameter.
    pub(super) paddings: Option<Vec<Vec<usize>>>,
    pub(super) param_groups: Value,
}

/// Something that all parameters of a group share.
#[derive(Clone)]
pub(super) enum Scalar {
    Tensor(Tensor),
    Value(Value),
}

impl Partition {
    /// Reads the file `key`.
    pub(super) fn read(store: &dyn Store, key: &str, model: &mut Model) -> Result<Self, Error> {
        saved::read(store, key, model, Self::take)
    }

    fn take(saved: &Saved) -> Result<Self, Error> {
        let broken = |what: &str| saved.damaged(format!("it has no `{what}`"));
        let state = saved.pickle.root().get("optimizer_state_dict");
        let state = state.ok_or_else(|| broken("optimizer_state_dict"))?;
        let stage = state.get("zero_stage").and_then(number);
        let stage = stage.ok_or_else(|| broken("zero_stage"))?;
        let (weights, inner) = match stage {
            ..3 => ("single_partition_of_fp32_groups", "base_optimizer_state"),
            _ => ("fp32_flat_groups", "optimizer_state_dict"),
        };
        let mut partition = Self {
            stage,
            ranks: rank_count(saved, state.get("partition_count"))?,
            groups: Vec::new(),
            scalars: Vec::new(),
            paddings: paddings(state.get("param_alignment_paddings")),
            param_groups: Value::Null,
        };
        let weights = state
            .get(weights)
            .and_then(Node::items)
            .ok_or_else(|| broken(weights))?;
        for node in weights {
            let run = saved.run(node)?;
            let run = run.ok_or_else(|| saved.damaged("its flat weights are no tensors"))?;
            partition.groups.push([(WEIGHT.to_string(), run)].into());
            partition.scalars.push(BTreeMap::new());
        }
        if let Some(inner) = state.get(inner) {
            partition.add_moments(saved, inner)?;
        }
        Ok(partition)
    }

    /// Adds what the optimizer keeps: `{"state": {group: {kind: …}}, "param_groups": …}`, or a list of `{kind: …}`.
    fn add_moments(&mut self, saved: &Saved, inner: Node) -> Result<(), Error> {
        let archive = &saved.archive;
        if let Some(groups) = inner.get("param_groups") {
            self.param_groups = plain::from_pickle(archive.file, archive.reader, groups)?;
        }
        let kept: Vec<(usize, Node)> = match inner.get("state").and_then(Node::pairs) {
            Some(pairs) => pairs
                .filter_map(|(group, kept)| Some((group.as_usize()?, kept)))
                .collect(),
            None => inner
                .items()
                .unwrap_or_default()
                .into_iter()
                .enumerate()
                .collect(),
        };
        for (group, kept) in kept {
            for (kind, node) in kept.pairs().into_iter().flatten() {
                if let (Some(kind), true) = (kind.as_str(), group < self.groups.len()) {
                    self.add_kept(saved, group, kind, node)?;
                }
            }
        }
        Ok(())
    }

    fn add_kept(
        &mut self,
        saved: &Saved,
        group: usize,
        kind: &str,
        node: Node,
    ) -> Result<(), Error> {
        let kind = kind.to_string();
        let Some(tensor) = saved.tensor(node)? else {
            let archive = &saved.archive;
            let value = plain::from_pickle(archive.file, archive.reader, node)?;
            self.scalars[group].insert(kind, Scalar::Value(value));
            return Ok(());
        };
        if tensor.shape.is_empty() {
            self.scalars[group].insert(kind, Scalar::Tensor(tensor));
        } else if let (Some(run), true) = (saved.run(node)?, kind != WEIGHT) {
            self.groups[group].insert(kind, run);
        }
        Ok(())
    }
}

/// A number, or an enumeration's.
fn number(node: Node) -> Option<i64> {
    node.as_int().or_else(|| node.args().first()?.as_int())
}

/// The number of ranks: one, or one for every group.
fn rank_count(saved: &Saved, node: Option<Node>) -> Result<usize, Error> {
    let items = node.and_then(Node::items);
    let counts = items.unwrap_or_else(|| node.into_iter().collect());
    let counts: Option<Vec<usize>> = counts.into_iter().map(Node::as_usize).collect();
    match counts.as_deref() {
        Some([first, others @ ..]) if others.iter().all(|count| count == first) => Ok(*first),
        Some([_, ..]) => Err(Error::Unsupported {
            file: saved.archive.file.to_string(),
            reason: "its groups are cut over different numbers of ranks, as those of experts are"
                .into(),
            hint: "make it universal with `python -m deepspeed.checkpoint.ds_to_universal`, and open that",
        }),
        _ => Err(saved.damaged("it has no `partition_count`")),
    }
}

fn paddings(node: Option<Node>) -> Option<Vec<Vec<usize>>> {
    let of_group = |group: Node| group.items()?.into_iter().map(Node::as_usize).collect();
    node?.items()?.into_iter().map(of_group).collect()
}
