//! The imagined source of a rank's averages: the pieces it averages, one after another.

use super::definition::Ema;
use super::segments::{Memories, Memory, SEGMENT_ELEMENTS};
use crate::Error;
use cairn_sharding::{Listed, Piece, TensorSpec};
use cairn_tensor::DType;
use std::collections::BTreeSet;

/// The widest element that is averaged.
const WIDEST_BYTES: u64 = 8;

/// A tensor that may be averaged, and the pieces of it that this rank averages.
#[derive(Debug, Clone)]
pub struct Averaged {
    /// Its name.
    pub name: String,
    /// Its type, its shape, and who holds it.
    pub spec: TensorSpec,
    /// What this rank averages, in the order in which the source has it. Each element belongs to one rank.
    pub pieces: Vec<Piece>,
}

/// A tensor that some definition includes.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) pieces: Vec<Piece>,
    /// How its average is stored.
    pub(super) spec: TensorSpec,
    pub(super) elements: usize,
}

/// Neighbouring elements of one tensor, under one lock during updates.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) tensor: usize,
    /// First byte in the source.
    pub(super) begin: u64,
    /// One past its last byte.
    pub(super) end: u64,
    pub(super) elements: usize,
}

impl Tensor {
    pub(super) fn new(rank: usize, tensor: Averaged) -> Result<Self, Error> {
        let Averaged { name, spec, pieces } = tensor;
        let shape = spec.shape().to_vec();
        let stored = match shape.contains(&0) {
            // No list has a piece of it; its place on a mesh keeps it.
            true => TensorSpec::new(DType::F32, shape, spec.distribution().clone()),
            false => {
                let own = Listed::new([(rank, pieces.clone())].into());
                TensorSpec::new(DType::F32, shape, own)
            }
        };
        let placed = |source| Error::Placement {
            name: name.clone(),
            source,
        };
        Ok(Self {
            spec: stored.map_err(placed)?,
            dtype: spec.dtype(),
            elements: pieces.iter().map(Piece::element_count).sum(),
            pieces,
            name,
        })
    }

    pub(super) fn element_bytes(&self) -> usize {
        self.dtype.bits() / 8
    }

    /// Its averages before the first update.
    pub(super) fn zeros(&self, definitions: &[Ema]) -> Memories {
        self.memories(definitions, self.elements)
    }

    /// Its averages without their memory.
    pub(super) fn none(&self, definitions: &[Ema]) -> Memories {
        self.memories(definitions, 0)
    }

    fn memories(&self, definitions: &[Ema], elements: usize) -> Memories {
        let memory = |ema: &Ema| {
            let included = ema.includes(&self.name);
            included.then(|| Memory::zeros(elements, ema.exact))
        };
        definitions.iter().map(memory).collect()
    }
}

impl Segment {
    pub(super) fn len_bytes(&self) -> u64 {
        self.end - self.begin
    }
}

/// Whether elements of this type are averaged.
pub(super) fn is_averaged(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::Bf16 | DType::F16 | DType::F64)
}

/// Cuts the source into segments; returns its length, too.
pub(super) fn cut(tensors: &[Tensor]) -> (Vec<Segment>, u64) {
    let mut segments = Vec::new();
    let mut begin = 0;
    for (index, tensor) in tensors.iter().enumerate() {
        begin = aligned(begin);
        let mut left = tensor.elements;
        while left > 0 {
            let elements = left.min(SEGMENT_ELEMENTS);
            let end = begin + (elements * tensor.element_bytes()) as u64;
            segments.push(Segment {
                tensor: index,
                begin,
                end,
                elements,
            });
            (begin, left) = (end, left - elements);
        }
    }
    (segments, begin)
}

/// Where a tensor begins at or after `position`: no element lies across a boundary that all types share.
pub(super) fn aligned(position: u64) -> u64 {
    position.next_multiple_of(WIDEST_BYTES)
}

/// No tensor is given twice.
pub(super) fn check_names(tensors: &[Tensor]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    match tensors.iter().find(|tensor| !names.insert(&tensor.name)) {
        None => Ok(()),
        Some(tensor) => Err(Error::State {
            name: tensor.name.clone(),
            reason: "is given twice to be averaged".into(),
        }),
    }
}
