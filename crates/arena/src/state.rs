//! What a rank holds, as the tensors of a checkpoint.
//!
//! | name | what | placement |
//! |---|---|---|
//! | `model.norm.weight` | a parameter, called as its model calls it | cut along `tp`; flat along `dp` at stage 3 |
//! | `optimizer.master.model.norm.weight` | the same in `f32`, if it is stored in `bf16` | also flat along `dp` from stage 1 on |
//! | `optimizer.exp_avg.model.norm.weight` | a moment of the optimizer | as the master |
//!
//! All are pinned to the stage of the pipeline (`pp`) that they belong to. A tied parameter is saved by the first stage that has it.

use crate::kept::Parts;
use crate::{Arena, Error, Options, Slot, Stage};
use cairn_checkpoint::{Bytes, State};
use cairn_collectives::Communicator;
use cairn_sharding::{DimSharding, Mesh, Sharding, TensorSpec};
use cairn_tensor::DType;

/// The plain value that says how often parameters were changed.
pub const UPDATES: &str = "optimizer.updates";

/// What the name of a master weight begins with.
pub(crate) const MASTER: &str = "optimizer.master.";

/// Where the axes of a mesh are, for a rank's tensors.
#[derive(Debug, Clone)]
pub(crate) struct Axes<'a> {
    mesh: &'a Mesh,
    tp: Option<usize>,
    dp: Option<usize>,
    pins: Vec<(usize, usize)>,
}

impl<'a> Axes<'a> {
    /// The axes for the tensors of the stage that `rank` belongs to.
    ///
    /// # Errors
    /// If groups and mesh contradict each other.
    pub(crate) fn new(mesh: &'a Mesh, arena: &Arena, rank: usize) -> Result<Self, Error> {
        let pipeline = mesh.axis("pp").ok();
        let coords = mesh.coords_of(rank);
        let pin = pipeline
            .zip(coords)
            .map(|(axis, coords)| (axis, coords[axis]));
        Ok(Self {
            mesh,
            tp: axis(mesh, "tp", arena.groups.tp.as_ref())?,
            dp: axis(mesh, "dp", arena.groups.dp.as_ref())?,
            pins: pin.into_iter().collect(),
        })
    }

    /// The tensor of a parameter.
    pub(crate) fn parameter(&self, slot: &Slot, options: &Options) -> Result<TensorSpec, Error> {
        let is_flat = options.stage == Stage::Parameters;
        self.spec(slot, options.dtype, is_flat)
    }

    /// The tensor of its master weight, or of a moment.
    pub(crate) fn state(&self, slot: &Slot, options: &Options) -> Result<TensorSpec, Error> {
        let is_flat = options.stage != Stage::Nothing;
        self.spec(slot, DType::F32, is_flat)
    }

    fn spec(&self, slot: &Slot, dtype: DType, is_flat: bool) -> Result<TensorSpec, Error> {
        let place = || {
            let mut dims = vec![DimSharding::WHOLE; slot.parameter.shape.len()];
            if let Some((dim, axis)) = slot.parameter.split.zip(self.tp) {
                dims[dim] = DimSharding::split(vec![axis]);
            }
            let flat = self.dp.filter(|_| is_flat).into_iter().collect();
            let sharding = Sharding::new(self.mesh, dims)?.with_flat(flat)?;
            let sharding = sharding.with_pins(self.pins.clone())?;
            TensorSpec::new(dtype, slot.parameter.shape.clone(), sharding)
        };
        place().map_err(|source| Error::Place {
            name: slot.parameter.name.clone(),
            source,
        })
    }
}

/// The index of an axis, which may be missing if its group has one rank.
fn axis(mesh: &Mesh, name: &'static str, group: &dyn Communicator) -> Result<Option<usize>, Error> {
    let axis = mesh.axis(name).ok();
    let (expected, actual) = (group.size(), axis.map_or(1, |axis| mesh.axes()[axis].size));
    match expected == actual {
        true => Ok(axis),
        false => Err(Error::Axis {
            axis: name,
            expected,
            actual,
        }),
    }
}

impl Arena {
    /// Adds everything that this rank holds to a state, as it is now.
    ///
    /// A save need not copy it before it returns: the state shares this memory, and a step that comes before all is captured changes a copy.
    /// To step without that copy, wait for [`Saving::fence`](cairn_checkpoint::Saving::fence) first. What is in files is read when it is captured, which
    /// no fence waits for: a step before that writes other files.
    ///
    /// # Errors
    /// If the mesh is not the one that the groups were made for, or a name is taken.
    pub fn add_to(&self, mesh: &Mesh, state: &mut State<'_>) -> Result<(), Error> {
        let axes = Axes::new(mesh, self, state.rank())?;
        for (memory, originals) in self.memories.iter().zip(self.originals()) {
            let parameters = Parts::of_values(&memory.parameters.held);
            let prefixes = memory.prefixes(&self.options.optimizer);
            let slots = memory.slots().zip(memory.held()).zip(originals);
            for (((slot, piece), held), _) in slots.filter(|(_, is_original)| *is_original) {
                let name = &slot.parameter.name;
                let spec = axes.parameter(slot, &self.options)?;
                state.bytes(name, &spec, Bytes::fenced(parameters.memory(held)))?;
                let spec = axes.state(slot, &self.options)?;
                for (list, prefix) in prefixes.iter().enumerate() {
                    let bytes = memory.remembered.bytes(list, piece.shard.clone());
                    state.bytes(&format!("{prefix}{name}"), &spec, bytes)?;
                }
            }
        }
        state.value(UPDATES, self.updates.into());
        Ok(())
    }
}
