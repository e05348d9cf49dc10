//! Which elements of which flat buffers a parameter is.
//!
//! Before stage 3 the buffers that all ranks have of a group make one vector, and its parameters follow one another there.
//! From stage 3 on every parameter is dealt to all ranks in equal parts, and the parts of a rank follow one another.

use super::model_states::ModelStates;
use super::partition::{Partition, Scalar};
use super::stream::{Run, Stream, part_len, tensor};
use super::{WEIGHT, name_of};
use crate::Error;
use crate::model::Model;
use std::collections::{BTreeMap, BTreeSet};

/// A parameter, and how many elements stay free behind it.
type Parameter<'a> = (&'a str, &'a [usize], usize);

/// Parameters that follow one another in the same streams.
pub(super) struct Layout<'a> {
    /// The step, for messages.
    place: &'a str,
    parameters: Vec<Parameter<'a>>,
    /// Kind → streams that share each parameter; those of all kinds are aligned.
    kinds: BTreeMap<&'a str, Vec<Stream>>,
    /// What parameters share that begin before a place in the streams.
    scalars: Vec<(usize, &'a BTreeMap<String, Scalar>)>,
    /// The streams end at the next multiple of this.
    alignment: usize,
}

impl<'a> Layout<'a> {
    /// All layouts of a step, which must be complete.
    pub(super) fn all(
        place: &'a str,
        states: &'a ModelStates,
        partitions: &'a [Partition],
    ) -> Result<Vec<Self>, Error> {
        let first = &partitions[0];
        if first.ranks != partitions.len() {
            return Err(Error::Unfinished {
                place: place.to_string(),
                reason: format!(
                    "{} of {} ranks wrote their part",
                    partitions.len(),
                    first.ranks
                ),
            });
        }
        let same = |other: &Partition| {
            other.stage == first.stage && other.groups.len() == first.groups.len()
        };
        if !partitions.iter().all(same) {
            return Err(Error::damaged(
                place,
                "its ranks do not agree on the number of groups",
            ));
        }
        if first.stage >= 3 {
            return Ok(vec![Self::by_parameter(place, states, partitions)]);
        }
        if states.shapes.len() != first.groups.len() {
            let reason = format!(
                "it has shapes of {} groups of parameters, and buffers of {}",
                states.shapes.len(),
                first.groups.len()
            );
            return Err(Error::damaged(place, reason));
        }
        let groups = 0..first.groups.len();
        Ok(groups
            .map(|group| Self::by_group(place, states, partitions, group))
            .collect())
    }

    /// One group before stage 3.
    fn by_group(
        place: &'a str,
        states: &'a ModelStates,
        partitions: &'a [Partition],
        group: usize,
    ) -> Self {
        let paddings = partitions[0]
            .paddings
            .as_ref()
            .and_then(|all| all.get(group));
        let padding = |index: usize| paddings.and_then(|all| all.get(index)).copied();
        let parameters = states.shapes[group].iter().enumerate();
        let groups = partitions.iter().map(|partition| &partition.groups[group]);
        let groups: Vec<_> = groups.collect();
        let kinds = groups.iter().flat_map(|group| group.keys());
        let kinds: BTreeSet<&String> = kinds.collect();
        let stream = |kind: &'a String| (kind.as_str(), vec![stream(kind, groups.iter().copied())]);
        Self {
            place,
            parameters: parameters
                .map(|(index, (name, shape))| {
                    (name.as_str(), shape.as_slice(), padding(index).unwrap_or(0))
                })
                .collect(),
            kinds: kinds.into_iter().map(stream).collect(),
            scalars: vec![(usize::MAX, &partitions[0].scalars[group])],
            alignment: 2 * partitions.len(),
        }
    }

    /// Everything from stage 3 on.
    fn by_parameter(place: &'a str, states: &'a ModelStates, partitions: &'a [Partition]) -> Self {
        let groups = partitions.iter().flat_map(|partition| &partition.groups);
        let kinds: BTreeSet<&String> = groups.flat_map(BTreeMap::keys).collect();
        let streams = |kind: &'a String| {
            let streams = partitions
                .iter()
                .map(|partition| stream(kind, partition.groups.iter()));
            (kind.as_str(), streams.collect())
        };
        let first = &partitions[0];
        let mut end = 0_usize;
        let scalars = first
            .groups
            .iter()
            .zip(&first.scalars)
            .map(|(group, scalars)| {
                end = end.saturating_add(group.get(WEIGHT).map_or(0, |run| run.len));
                (end, scalars)
            });
        Self {
            place,
            parameters: states
                .shapes
                .iter()
                .flatten()
                .map(|(name, shape)| (name.as_str(), shape.as_slice(), 0))
                .collect(),
            scalars: scalars.collect(),
            alignment: 1,
            kinds: kinds.into_iter().map(streams).collect(),
        }
    }

    /// Adds every parameter, and what is kept of it, to a model.
    pub(super) fn place(&self, model: &mut Model) -> Result<(), Error> {
        let weights = self.kinds.get(WEIGHT).map_or(&[][..], Vec::as_slice);
        let mut start = 0_usize;
        for (name, shape, padding) in &self.parameters {
            for (kind, streams) in &self.kinds {
                match tensor(shape, start, streams) {
                    Some(tensor) => {
                        model.tensors.insert(name_of(name, kind), tensor);
                    }
                    None if *kind == WEIGHT => {
                        let reason = format!("its flat buffers end before `{name}` does");
                        return Err(Error::damaged(self.place, reason));
                    }
                    // The optimizer has buffers of other sizes, too, that are no parameter's.
                    None => {}
                }
            }
            self.place_scalars(name, start, model);
            let len = part_len(shape, weights.len()).checked_add(*padding);
            start = len
                .and_then(|len| start.checked_add(len))
                .unwrap_or(usize::MAX);
        }
        self.check_end(start, weights)
    }

    /// Gives a parameter what it shares with others of its group.
    fn place_scalars(&self, parameter: &str, start: usize, model: &mut Model) {
        let mut groups = self.scalars.iter();
        let scalars = groups.find_map(|(end, scalars)| (start < *end).then_some(*scalars));
        for (kind, scalar) in scalars.into_iter().flatten() {
            let name = name_of(parameter, kind);
            match scalar {
                Scalar::Value(value) => {
                    model.values.insert(name, value.clone());
                }
                Scalar::Tensor(tensor) => {
                    model.tensors.insert(name, tensor.clone());
                }
            }
        }
    }

    /// Behind the last parameter comes what fills up the last ranks, and no more: anything else would mean other offsets.
    fn check_end(&self, end: usize, weights: &[Stream]) -> Result<(), Error> {
        let filled = |len: usize| len.div_ceil(self.alignment);
        match weights
            .iter()
            .find(|stream| filled(stream.len()) != filled(end))
        {
            None => Ok(()),
            Some(stream) => {
                let reason = format!("its parameters fill {end} of {} elements", stream.len());
                Err(Error::damaged(self.place, reason))
            }
        }
    }
}

/// What several groups keep of a kind, one after another, at the places of their weights.
fn stream<'a>(kind: &str, groups: impl Iterator<Item = &'a BTreeMap<String, Run>>) -> Stream {
    let mut stream = Stream::default();
    for group in groups {
        let len = group.get(WEIGHT).map_or(0, |run| run.len);
        stream.push(group.get(kind).copied(), len);
    }
    stream
}
