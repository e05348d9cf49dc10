//! Memory that tensors are loaded into.

use crate::Error;
use crate::state::{check_memory, place};
use cairn_sharding::{LocalBox, TensorSpec};

/// One rank's part of one tensor, and the memory to load it into.
///
/// Targets of several ranks can be loaded together: each stored byte is then read once and goes wherever it is needed.
#[derive(Debug)]
pub struct Target<'a> {
    pub(crate) wanted: Wanted,
    pub(crate) bytes: &'a mut [u8],
}

/// What a target asks for, without its memory: enough to plan a load.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub(crate) name: String,
    pub(crate) spec: TensorSpec,
    pub(crate) rank: usize,
    strides: Option<Vec<usize>>,
}

impl<'a> Target<'a> {
    /// `rank`'s part of `spec`, row-major in `bytes`.
    ///
    /// # Errors
    /// If the length is not what the formula says.
    pub fn new(
        name: &str,
        spec: &TensorSpec,
        rank: usize,
        bytes: &'a mut [u8],
    ) -> Result<Self, Error> {
        check_memory(name, spec, rank, bytes.len(), None)?;
        let wanted = Wanted::new(name, spec, rank);
        Ok(Self { wanted, bytes })
    }

    /// `rank`'s part of `spec`, in memory with these strides (in elements).
    ///
    /// # Errors
    /// If the strides do not fit the local shape or reach beyond `bytes`.
    pub fn strided(
        name: &str,
        spec: &TensorSpec,
        rank: usize,
        bytes: &'a mut [u8],
        strides: &[usize],
    ) -> Result<Self, Error> {
        check_memory(name, spec, rank, bytes.len(), Some(strides))?;
        let mut wanted = Wanted::new(name, spec, rank);
        wanted.strides = Some(strides.to_vec());
        Ok(Self { wanted, bytes })
    }

    /// The same target, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> Target<'_> {
        Target {
            wanted: self.wanted.clone(),
            bytes: self.bytes,
        }
    }
}

impl Wanted {
    /// `rank`'s part of `spec`.
    pub fn new(name: &str, spec: &TensorSpec, rank: usize) -> Self {
        Self {
            name: name.to_string(),
            spec: spec.clone(),
            rank,
            strides: None,
        }
    }

    /// What `rank` asks for if it asks for the same tensor.
    pub(crate) fn of_rank(&self, rank: usize) -> Self {
        Self::new(&self.name, &self.spec, rank)
    }

    /// The boxes of the tensor this target holds, and where they lie in its memory.
    pub(crate) fn boxes(&self) -> Vec<LocalBox> {
        let shape = self.spec.local_shape(self.rank).unwrap_or_default();
        let mut boxes = self.spec.local_boxes(self.rank);
        for held in &mut boxes {
            held.local = place(&held.local, &shape, self.strides.as_deref());
        }
        boxes
    }
}
