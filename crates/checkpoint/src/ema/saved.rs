//! Averages on their way into a checkpoint and out of it.

use super::averages::{Averages, Inner, Phase, Progress, unfinished};
use super::definition::Ema;
use super::record::{OnChange, Record};
use super::segments::{F32_BYTES, Memory, reclaim};
use super::source::Tensor;
use super::{AVERAGE, rest_name, stored_name};
use crate::Error;
use crate::state::State;
use crate::target::Target;
use bytes::Bytes;
use cairn_sharding::TensorSpec;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLockReadGuard};

/// The averages between two updates.
#[derive(Debug)]
pub struct View<'a> {
    averages: &'a Averages,
    inner: RwLockReadGuard<'a, Inner>,
}

impl View<'_> {
    /// What is stored of the averages: name, which pieces this rank has, and their memory.
    pub fn tensors(&self) -> Vec<(String, &TensorSpec, &[u8])> {
        let Phase::Resting(memories) = &self.inner.phase else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (tensor, memories) in self.averages.tensors.iter().zip(memories) {
            for (ema, memory) in self.averages.definitions.iter().zip(memories) {
                let Some(memory) = memory else { continue };
                let mut add = |name, bytes| found.push((name, &tensor.spec, bytes));
                let (rounded, rest) = memory.slices();
                add(stored_name(&ema.label, &tensor.name), rounded);
                if let Some(rest) = rest {
                    add(rest_name(&ema.label, &tensor.name), rest);
                }
            }
        }
        found
    }

    /// The plain values that go with them.
    pub fn values(&self) -> BTreeMap<String, Value> {
        values_of(&self.averages.definitions, &self.inner.progress)
    }

    /// Adds all of it to the state of a rank.
    ///
    /// # Errors
    /// If the state has one of the names already.
    pub fn add_to<'a>(&'a self, state: &mut State<'a>) -> Result<(), Error> {
        for (name, spec, bytes) in self.tensors() {
            state.tensor(&name, spec, bytes)?;
        }
        for (name, value) in self.values() {
            state.value(&name, value);
        }
        Ok(())
    }
}

fn values_of(definitions: &[Ema], progress: &[Progress]) -> BTreeMap<String, Value> {
    let value = |(ema, progress): (&Ema, &Progress)| {
        let record = Record {
            definition: ema.clone(),
            updates: progress.updates,
            last_step: progress.last_step,
        };
        (format!("{AVERAGE}/{}", ema.label), record.to_json())
    };
    definitions.iter().zip(progress).map(value).collect()
}

impl Memory {
    /// The arrays of the average `ema` of `tensor`, with the names they are stored by.
    fn named_mut(&mut self, ema: &Ema, tensor: &Tensor) -> Vec<(String, &mut [u8])> {
        let rounded = (stored_name(&ema.label, &tensor.name), &mut self.rounded[..]);
        let rest = self.rest.as_mut();
        let rest = rest.map(|rest| (rest_name(&ema.label, &tensor.name), &mut rest[..]));
        [rounded].into_iter().chain(rest).collect()
    }
}

impl Averages {
    /// The averages as they are, to be saved. No update begins while the view is held.
    ///
    /// # Errors
    /// If an update goes on, or was never finished.
    pub fn view(&self) -> Result<View<'_>, Error> {
        let inner = self.read();
        match &inner.phase {
            Phase::Updating(update) => Err(unfinished(update)),
            Phase::Resting(_) => Ok(View {
                averages: self,
                inner,
            }),
        }
    }

    /// What is stored of the averages: name, which pieces this rank has, and the length of their memory.
    pub fn stored(&self) -> Vec<(String, &TensorSpec, usize)> {
        let mut found = Vec::new();
        for tensor in self
            .tensors
            .iter()
            .filter(|tensor| tensor.spec.holds(self.rank))
        {
            let len = tensor.elements * F32_BYTES;
            for ema in self
                .definitions
                .iter()
                .filter(|ema| ema.includes(&tensor.name))
            {
                found.push((stored_name(&ema.label, &tensor.name), &tensor.spec, len));
                if ema.exact {
                    found.push((rest_name(&ema.label, &tensor.name), &tensor.spec, len));
                }
            }
        }
        found
    }

    /// The memory of what is [`stored`](Self::stored), by name. The next update waits until nobody keeps it any more.
    ///
    /// # Errors
    /// If an update goes on, or was never finished.
    pub fn lend(&self) -> Result<BTreeMap<String, Bytes>, Error> {
        let mut inner = self.write();
        let memories = match &mut inner.phase {
            Phase::Updating(update) => return Err(unfinished(update)),
            Phase::Resting(memories) => memories,
        };
        let mut found = BTreeMap::new();
        for (tensor, memories) in self.tensors.iter().zip(memories) {
            for (ema, memory) in self.definitions.iter().zip(memories) {
                let Some(memory) = memory else { continue };
                let (rounded, rest) = memory.lend();
                found.insert(stored_name(&ema.label, &tensor.name), rounded);
                if let Some(rest) = rest {
                    found.insert(rest_name(&ema.label, &tensor.name), rest);
                }
            }
        }
        Ok(found)
    }

    /// The plain values that go with what is stored, as they are after the update of `step`, if one was begun.
    pub fn values(&self, step: Option<u64>) -> BTreeMap<String, Value> {
        let inner = self.read();
        let known = self.definitions.iter().zip(&inner.progress);
        let after = known.map(|(ema, progress)| match step {
            Some(step) => progress.after(ema, step),
            None => *progress,
        });
        values_of(&self.definitions, &after.collect::<Vec<_>>())
    }

    /// Goes on from where the averages of a checkpoint with these plain `values` are, and returns the labels that start anew.
    ///
    /// Their memory is filled by loading [`targets`](Self::targets).
    ///
    /// # Errors
    /// Unless `on_change` says otherwise: [`Error::NoSuchAverage`] if the checkpoint does not have one of them, [`Error::AverageChanged`]
    /// if it was defined in another way.
    pub fn resume(
        &mut self,
        values: &BTreeMap<String, Value>,
        on_change: OnChange,
    ) -> Result<Vec<String>, Error> {
        let mut anew = Vec::new();
        let mut resumed = Vec::new();
        for ema in &self.definitions {
            let found = Record::of(ema, values);
            resumed.push(match found {
                Ok(record) => Progress {
                    updates: record.updates,
                    last_step: record.last_step,
                },
                Err(error) if on_change == OnChange::Refuse => return Err(error),
                Err(_) => {
                    anew.push(ema.label.clone());
                    Progress::default()
                }
            });
        }
        let zeros = self
            .tensors
            .iter()
            .map(|tensor| tensor.zeros(&self.definitions));
        let phase = Phase::Resting(zeros.collect());
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        *inner = Inner {
            progress: resumed,
            phase,
        };
        Ok(anew)
    }

    /// The memory to load after [`resume`](Self::resume): whatever layout the averages were saved on, each rank gets its own pieces.
    ///
    /// # Errors
    /// If an update goes on.
    pub fn targets(&mut self) -> Result<Vec<Target<'_>>, Error> {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let memories = match &mut inner.phase {
            Phase::Resting(memories) => memories,
            Phase::Updating(update) => return Err(unfinished(update)),
        };
        reclaim(memories);
        let (rank, definitions, progress) = (self.rank, &self.definitions, &inner.progress);
        let mut targets = Vec::new();
        let held = |tensor: &&Tensor| tensor.spec.holds(rank);
        let tensors = self.tensors.iter().zip(memories);
        for (tensor, memories) in tensors.filter(|(tensor, _)| held(tensor)) {
            let known = definitions.iter().zip(progress).zip(memories);
            for ((ema, _), memory) in known.filter(|((_, progress), _)| progress.updates > 0) {
                for (name, bytes) in memory
                    .iter_mut()
                    .flat_map(|memory| memory.named_mut(ema, tensor))
                {
                    targets.push(Target::new(&name, &tensor.spec, rank, bytes)?);
                }
            }
        }
        Ok(targets)
    }
}
