//! The memory of one block of a model.

use cairn_sharding::{Region, chunk};
use std::ops::Range;

/// A parameter as a model describes it, before it is cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name in the model, as Hugging Face calls it: `model.layers.0.mlp.up_proj.weight`.
    pub name: String,
    /// The shape of the whole parameter, `[out, in]` for a linear layer.
    pub shape: Vec<usize>,
    /// The dim that the ranks of the `tp` axis share out, as `chunk` cuts it; none if each holds all of it.
    pub split: Option<usize>,
    /// Its first values.
    pub init: Init,
    /// Whether weight decay applies.
    pub decay: bool,
    /// Whether each rank of the `tp` axis holds only a part of the sum that is its gradient, as for norms between ranks that share a sequence.
    pub partial_gradient: bool,
}

/// The first values of a parameter. They depend on the seed, the name and the place of an element in the whole parameter, not on any layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Normal numbers around zero.
    Normal {
        /// Their standard deviation.
        deviation: f64,
    },
}

/// A parameter and where it lies.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// The whole parameter.
    pub parameter: Parameter,
    /// The shape of the part that this rank of the `tp` axis holds.
    pub local_shape: Vec<usize>,
    /// Where that part begins in the dim that is cut.
    pub offset: usize,
    /// Its elements in the memory of the bucket.
    pub range: Range<usize>,
}

impl Slot {
    /// The part of the parameter that this rank holds.
    pub fn region(&self) -> Region {
        let mut region = Region::whole(&self.parameter.shape);
        if let Some(dim) = self.parameter.split {
            region.offset[dim] = self.offset;
            region.extent[dim] = self.local_shape[dim];
        }
        region
    }
}

/// The parameters of one block, one after another: what is gathered, reduced and given to a block as one slice.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    slots: Vec<Slot>,
    len: usize,
}

impl Bucket {
    /// The parameters as rank `index` of `size` along the `tp` axis holds them.
    ///
    /// # Panics
    /// If a parameter is cut in a dim that it does not have, or has more elements than memory.
    pub fn new(parameters: Vec<Parameter>, index: usize, size: usize) -> Self {
        let mut len: usize = 0;
        let slots = parameters.into_iter().map(|parameter| {
            let mut local_shape = parameter.shape.clone();
            let mut offset = 0;
            if let Some(dim) = parameter.split {
                let part = chunk(parameter.shape[dim], size, index);
                (offset, local_shape[dim]) = (part.start, part.len());
            }
            let start = len;
            let count = cairn_tensor::element_count(&local_shape);
            len = count
                .and_then(|count| len.checked_add(count))
                .expect("parameters fit in memory");
            Slot {
                parameter,
                local_shape,
                offset,
                range: start..len,
            }
        });
        let slots = slots.collect();
        Self { slots, len }
    }

    /// The parameters in order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
