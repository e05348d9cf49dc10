//! Loading the memory of a rank from a checkpoint or a model.

use crate::cut::Cut;
use crate::memory::Memory;
use crate::state::{Axes, MASTER};
use crate::{Arena, Bucket, Error, Options};
use bytemuck::cast_slice_mut;
use cairn_checkpoint::{LoadOptions, LoadReport, SharedSource, Strictness, Target, load, recast};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_tensor::DType;
use std::collections::HashSet;
use std::ops::Range;

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
    /// How master weights and moments were loaded: into memory all at once, into files bucket by bucket.
    pub state: Vec<LoadReport>,
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

        let (state, widened) = self.load_state(mesh, source, scope, options)?;
        if scope == Scope::Parameters {
            self.start_anew()?;
        }
        Ok(Loaded {
            parameters,
            state,
            cast,
            widened,
        })
    }

    /// Forgets what the optimizer remembers.
    fn start_anew(&mut self) -> Result<(), Error> {
        self.updates = 0;
        for memory in &mut self.memories {
            let masters = usize::from(memory.has_master);
            memory.remembered.change(|_, lists| {
                lists[masters..]
                    .iter_mut()
                    .for_each(|moment| moment.fill(0.0));
                Ok(())
            })?;
        }
        Ok(())
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

    /// Loads master weights and moments; tells also which parameters have no stored master.
    fn load_state(
        &mut self,
        mesh: &Mesh,
        source: &SharedSource,
        scope: Scope,
        load: &LoadOptions,
    ) -> Result<(Vec<LoadReport>, Vec<String>), Error> {
        let rank = self.groups.world.rank();
        let origin = Origin {
            axes: Axes::new(mesh, self, rank)?,
            options: &self.options,
            source,
            scope,
        };
        let (mut reports, mut widened, mut at_once) = (Vec::new(), Vec::new(), Vec::new());
        for memory in &mut self.memories {
            let prefixes = memory.prefixes(&self.options.optimizer);
            let Memory {
                bucket,
                cut,
                remembered,
                ..
            } = memory;
            if !remembered.is_in_file() {
                let lists = remembered.lists_mut().unwrap_or_default();
                at_once.extend(origin.wanted(bucket, cut, &prefixes, lists)?);
                continue;
            }
            let mut buffers = vec![vec![0.0; cut.len()]; prefixes.len()];
            let lists = buffers.iter_mut().map(|buffer| &mut buffer[..]);
            let wanted = origin.wanted(bucket, cut, &prefixes, lists.collect())?;
            widened.extend(without_master(&wanted));
            reports.push(fill(source, wanted, DType::F32, rank, load)?);
            remembered.change(|part, lists| {
                for (list, buffer) in lists.iter_mut().zip(&buffers) {
                    list.copy_from_slice(&buffer[part.clone()]);
                }
                Ok(())
            })?;
        }
        widened.extend(without_master(&at_once));
        if !at_once.is_empty() {
            reports.push(fill(source, at_once, DType::F32, rank, load)?);
        }
        Ok((reports, widened))
    }
}

/// What master weights and moments are loaded from, and how much of them.
struct Origin<'a> {
    axes: Axes<'a>,
    options: &'a Options,
    source: &'a SharedSource,
    scope: Scope,
}

impl Origin<'_> {
    /// What is to be loaded into the lists of a bucket, whose names begin with `prefixes`.
    fn wanted<'m>(
        &self,
        bucket: &Bucket,
        cut: &Cut,
        prefixes: &[String],
        lists: Vec<&'m mut [f32]>,
    ) -> Result<Vec<Wanted<'m>>, Error> {
        let pieces: Vec<_> = cut.pieces().map(|piece| piece.shard).collect();
        let mut wanted = Vec::new();
        for (prefix, list) in prefixes.iter().zip(lists) {
            let is_master = prefix == MASTER;
            if self.scope == Scope::Parameters && !is_master {
                continue;
            }
            let parts = split(size_of::<f32>(), pieces.clone(), cast_slice_mut(list));
            for (slot, bytes) in bucket.slots().iter().zip(parts) {
                let parameter = slot.parameter.name.clone();
                let name = format!("{prefix}{parameter}");
                let widens = is_master && self.source.find(&name).is_none();
                wanted.push(Wanted {
                    name: if widens { parameter.clone() } else { name },
                    parameter,
                    spec: self.axes.state(slot, self.options)?,
                    bytes,
                });
            }
        }
        Ok(wanted)
    }
}

/// The parameters that are loaded as their own masters.
fn without_master(wanted: &[Wanted<'_>]) -> Vec<String> {
    let is_widened = |wanted: &&Wanted<'_>| wanted.name == wanted.parameter;
    let widened = wanted.iter().filter(is_widened);
    widened.map(|wanted| wanted.parameter.clone()).collect()
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
