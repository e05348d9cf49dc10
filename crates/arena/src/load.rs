//! Loading the memory of a rank from a checkpoint or a model.

use crate::state::{Axes, MASTER};
use crate::{Arena, Error};
use bytemuck::cast_slice_mut;
use cairn_checkpoint::{LoadOptions, LoadReport, SharedSource, Strictness, Target, load, recast};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_tensor::DType;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// How much is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Parameters, master weights and moments, to go on with a run.
    Everything,
    /// Parameters, to begin a new run with; the optimizer starts from nothing.
    Parameters,
}

/// What a load did on this rank.
#[derive(Debug)]
pub struct Loaded {
    /// How parameters were loaded.
    pub parameters: LoadReport,
    /// How master weights and moments were loaded.
    pub state: LoadReport,
    /// Parameters that were stored as another type and cast: from a stored master, where there is one, else from the parameter.
    pub cast: Vec<String>,
    /// Parameters without a stored master weight, which is now the stored parameter widened.
    pub widened: Vec<String>,
}

/// A tensor to load, and what it is loaded from.
struct Wanted<'a> {
    parameter: String,
    name: String,
    spec: TensorSpec,
    bytes: &'a mut [u8],
}

impl Arena {
    /// Loads what this rank holds, wherever and however `source` has it.
    ///
    /// What parameters are stored as may differ: `f32` parameters come from stored masters if there are some, masters that are missing come from the
    /// stored parameters. Tensors that this rank does not hold are passed over. The number of changes so far is a plain value of a checkpoint,
    /// see [`set_updates`](Arena::set_updates).
    ///
    /// # Errors
    /// If something is missing or has another shape; if the load fails, the memory is a mixture and must not be used.
    pub fn load(
        &mut self,
        mesh: &Mesh,
        source: &SharedSource,
        scope: Scope,
        options: &LoadOptions,
    ) -> Result<Loaded, Error> {
        for memory in &mut self.memories {
            memory.parameters.forget(&self.tools.buffers)?;
        }
        let rank = self.groups.world.rank();
        let dtype = self.options.dtype;
        let wanted = self.wanted_parameters(mesh, source)?;
        let cast = misfits(source, &wanted, dtype);
        let parameters = fill(source, wanted, dtype, rank, options)?;

        let wanted = self.wanted_state(mesh, source, scope)?;
        let is_widened = |wanted: &&Wanted| wanted.name == wanted.parameter;
        let widened = wanted.iter().filter(is_widened);
        let widened = widened.map(|wanted| wanted.parameter.clone()).collect();
        let state = fill(source, wanted, DType::F32, rank, options)?;
        if scope == Scope::Parameters {
            self.start_anew();
        }
        Ok(Loaded {
            parameters,
            state,
            cast,
            widened,
        })
    }

    /// Forgets what the optimizer remembers.
    fn start_anew(&mut self) {
        self.updates = 0;
        for memory in &mut self.memories {
            for moment in &mut memory.moments {
                Arc::make_mut(moment).fill(0.0);
            }
        }
    }

    fn wanted_parameters(
        &mut self,
        mesh: &Mesh,
        source: &SharedSource,
    ) -> Result<Vec<Wanted<'_>>, Error> {
        let axes = Axes::new(mesh, self, self.groups.world.rank())?;
        let options = &self.options;
        let mut wanted = Vec::new();
        for memory in &mut self.memories {
            let ranges: Vec<_> = memory.held().collect();
            let values = memory.parameters.held_mut();
            let parts = split(values.width(), ranges, values.bytes_mut());
            for (slot, bytes) in memory.bucket.slots().iter().zip(parts) {
                let parameter = slot.parameter.name.clone();
                let exact = format!("{MASTER}{parameter}");
                let is_exact = options.dtype == DType::F32 && source.find(&exact).is_some();
                wanted.push(Wanted {
                    name: if is_exact { exact } else { parameter.clone() },
                    parameter,
                    spec: axes.parameter(slot, options)?,
                    bytes,
                });
            }
        }
        Ok(wanted)
    }

    fn wanted_state(
        &mut self,
        mesh: &Mesh,
        source: &SharedSource,
        scope: Scope,
    ) -> Result<Vec<Wanted<'_>>, Error> {
        let axes = Axes::new(mesh, self, self.groups.world.rank())?;
        let options = &self.options;
        let mut wanted = Vec::new();
        for memory in &mut self.memories {
            let pieces: Vec<_> = memory.cut.pieces().map(|piece| piece.shard).collect();
            let slots = memory.bucket.slots().to_vec();
            for (prefix, values) in memory.state_mut(&options.optimizer) {
                let is_master = prefix == MASTER;
                if scope == Scope::Parameters && !is_master {
                    continue;
                }
                let parts = split(size_of::<f32>(), pieces.clone(), cast_slice_mut(values));
                for (slot, bytes) in slots.iter().zip(parts) {
                    let parameter = slot.parameter.name.clone();
                    let name = format!("{prefix}{parameter}");
                    let widens = is_master && source.find(&name).is_none();
                    wanted.push(Wanted {
                        name: if widens { parameter.clone() } else { name },
                        parameter,
                        spec: axes.state(slot, options)?,
                        bytes,
                    });
                }
            }
        }
        Ok(wanted)
    }
}

/// The parts of `bytes` at these ranges of elements, which lie one after another.
fn split(width: usize, ranges: Vec<Range<usize>>, mut bytes: &mut [u8]) -> Vec<&mut [u8]> {
    let parts = ranges.into_iter().map(|range| {
        let (part, rest) = std::mem::take(&mut bytes).split_at_mut(range.len() * width);
        bytes = rest;
        part
    });
    parts.collect()
}

/// The parameters that are stored as another type than `dtype`.
fn misfits(source: &SharedSource, wanted: &[Wanted<'_>], dtype: DType) -> Vec<String> {
    let is_misfit = |wanted: &&Wanted| {
        let stored = source.find(&wanted.parameter);
        stored.is_some_and(|stored| stored.dtype != dtype)
    };
    let names = wanted.iter().filter(is_misfit);
    names.map(|wanted| wanted.parameter.clone()).collect()
}

/// Loads everything that is wanted as `dtype`, whatever it is stored as.
fn fill(
    source: &SharedSource,
    wanted: Vec<Wanted<'_>>,
    dtype: DType,
    rank: usize,
    options: &LoadOptions,
) -> Result<LoadReport, Error> {
    let names: HashSet<String> = wanted.iter().map(|wanted| wanted.name.clone()).collect();
    let stored = names.iter().filter_map(|name| source.find(name));
    let source = match stored.into_iter().all(|stored| stored.dtype == dtype) {
        true => source.clone(),
        false => recast(source.clone(), dtype, |name| names.contains(name))?,
    };
    let targets = wanted.into_iter();
    let targets = targets.map(|to| Target::new(&to.name, &to.spec, rank, to.bytes));
    let targets = targets.collect::<Result<_, _>>()?;
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..options.clone()
    };
    Ok(load(source.as_ref(), targets, &options)?)
}
