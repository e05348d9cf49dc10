//! Gradients that are sums over several places: of ranks that share a sequence, of blocks that share a parameter.

use crate::buffers::Buffers;
use crate::memory::Memory;
use crate::{Error, Groups};
use cairn_collectives::{Communicator, numbers};
use cairn_kernels::Pool;
use cairn_kernels::elementwise::add;
use cairn_tensor::ReduceOp;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// This rank's piece of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) bucket: usize,
    /// Its elements in the shard of the bucket.
    pub(crate) range: Range<usize>,
}

/// Sums that a group makes together, in one call.
#[derive(Debug)]
pub(crate) struct Sums {
    /// None if all terms are on this rank.
    group: Option<Arc<dyn Communicator>>,
    /// For each sum, the places of its terms on this rank, which all get the result.
    terms: Vec<Vec<Place>>,
}

impl Sums {
    /// The gradients of which each rank of the `tp` axis has a part.
    pub(crate) fn partial(memories: &[Memory], groups: &Groups) -> Self {
        let mut terms = Vec::new();
        for (index, memory) in memories.iter().enumerate() {
            for (slot, piece) in memory.slots() {
                if slot.parameter.partial_gradient && groups.tp.size() > 1 {
                    let (bucket, range) = (index, piece.shard);
                    terms.push(vec![Place { bucket, range }]);
                }
            }
        }
        Self {
            group: Some(groups.tp.clone()),
            terms,
        }
    }

    /// The gradients of parameters that several blocks have: those of this rank alone, then those it has in common with other stages.
    pub(crate) fn tied(memories: &[Memory], groups: &Groups) -> Result<[Self; 2], Error> {
        let mut by_name: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
        for (bucket, memory) in memories.iter().enumerate() {
            for (slot, piece) in memory.slots() {
                let range = piece.shard;
                let places = by_name.entry(&slot.parameter.name).or_default();
                places.push(Place { bucket, range });
            }
        }
        by_name.iter().try_for_each(same_length)?;
        let names = groups.tied.iter().flat_map(|tied| &tied.names);
        let common = names.map(|name| {
            let places = by_name.remove(name.as_str());
            places.ok_or_else(|| wrong(name, "is not among the parameters of this rank"))
        });
        let common = common.collect::<Result<_, _>>()?;
        by_name.retain(|_, places| places.len() > 1);
        let own = Self {
            group: None,
            terms: by_name.into_values().collect(),
        };
        let common = Self {
            group: groups.tied.as_ref().map(|tied| tied.group.clone()),
            terms: common,
        };
        Ok([own, common])
    }

    /// Replaces the gradients at every place by the sum that they belong to.
    ///
    /// # Collective
    pub(crate) fn apply(
        &self,
        gradients: &mut [Vec<f32>],
        pool: &Pool,
        buffers: &Buffers,
    ) -> Result<(), Error> {
        if self.terms.is_empty() {
            return Ok(());
        }
        let ranges = self.ranges();
        let mut sums = buffers.zeros(ranges.last().map_or(0, |range| range.end));
        for (places, range) in self.terms.iter().zip(&ranges) {
            for Place {
                bucket,
                range: from,
            } in places
            {
                let term = &gradients[*bucket][from.clone()];
                add(pool, term, &mut sums[range.clone()]);
            }
        }
        if let Some(group) = &self.group {
            numbers::all_reduce(group.as_ref(), ReduceOp::Sum, &mut sums)?;
        }
        for (places, range) in self.terms.iter().zip(ranges) {
            for Place { bucket, range: to } in places {
                gradients[*bucket][to.clone()].copy_from_slice(&sums[range.clone()]);
            }
        }
        buffers.give(sums);
        Ok(())
    }

    /// Where each sum lies among all.
    fn ranges(&self) -> Vec<Range<usize>> {
        let mut end = 0;
        let ranges = self.terms.iter().map(|places| {
            let start = end;
            end += places.first().map_or(0, |place| place.range.len());
            start..end
        });
        ranges.collect()
    }
}

/// Whether all blocks of this rank that have a parameter hold as much of it.
fn same_length((name, places): (&&str, &Vec<Place>)) -> Result<(), Error> {
    let lens: Vec<usize> = places.iter().map(|place| place.range.len()).collect();
    match lens.iter().all(|len| *len == lens[0]) {
        true => Ok(()),
        false => Err(wrong(
            name,
            &format!("has {lens:?} elements in different blocks"),
        )),
    }
}

fn wrong(name: &str, reason: &str) -> Error {
    Error::Tied {
        name: name.to_string(),
        reason: reason.to_string(),
    }
}
