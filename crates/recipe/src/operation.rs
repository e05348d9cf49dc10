//! What the attributes of a statement do to its tensors, one after another.

mod build;
mod fused;
mod inverse;
mod run;

use cairn_tensor::DType;

pub(crate) use build::{Built, check, operations};
pub(crate) use inverse::inverse;
pub(crate) use run::{Item, Kind, run};

/// Something done to a list of tensors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    Regroup(Regroup),
    /// No dims: all, from the last to the first.
    Permute(Vec<i64>),
    Cast {
        from: Option<DType>,
        to: DType,
        /// Whether optimizer state is cast too.
        on_state: bool,
    },
    /// One dim may be -1: as long as is left.
    Reshape(Vec<i64>),
    /// Up to this shape; -1: as long as it is.
    Pad {
        shape: Vec<i64>,
        fill: f64,
    },
    PadToMultiple {
        multiple: usize,
        dim: i64,
        fill: f64,
    },
    /// Down to this shape; -1: as long as it is.
    Unpad(Vec<i64>),
    /// Within each head along `dim`: halves to pairs, or pairs to halves.
    Rotary {
        head: usize,
        dim: i64,
        to_pairs: bool,
    },
    /// One tensor with a new dim.
    Stack {
        dim: i64,
    },
    /// A tensor for each index in a dim.
    Unstack {
        dim: i64,
        count: usize,
    },
    /// A tensor and its scales to values.
    Dequant(Scaled),
    /// Values to a tensor and its scales.
    Quant(Scaled),
    /// The same tensor so many times.
    Tie(usize),
    /// Of so many tensors that are the same, the first.
    Untie,
}

/// How scales are stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scaled {
    /// FP8 E4M3 elements; a scale for each block.
    Fp8 { block: Vec<usize> },
    /// Bytes of two FP4 elements, 16 to a block, as `[…, blocks, 16]`; a power of two for each block, as `[…, blocks]`.
    Mxfp4,
}

/// Tensors cut along a dim, the parts dealt out in another order, and joined again.
///
/// Joining, splitting and the fused layouts of attention and feed-forward weights are all this.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Regroup {
    pub(crate) axis: i64,
    /// How each tensor is cut.
    pub(crate) cuts: Vec<Cut>,
    /// Which part comes at each place.
    pub(crate) order: Vec<usize>,
    /// How many parts make each result.
    pub(crate) joins: Vec<usize>,
}

/// How a tensor is cut.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cut {
    /// Into so many equal parts.
    Equal(usize),
    /// Into parts of these sizes.
    Sizes(Vec<usize>),
}

impl Cut {
    pub(crate) fn count(&self) -> usize {
        match self {
            Cut::Equal(count) => *count,
            Cut::Sizes(sizes) => sizes.len(),
        }
    }
}

impl Regroup {
    /// So many tensors joined into one.
    pub(crate) fn join(axis: i64, count: usize) -> Self {
        Self {
            axis,
            cuts: vec![Cut::Equal(1); count],
            order: (0..count).collect(),
            joins: vec![count],
        }
    }

    /// One tensor cut.
    pub(crate) fn split(axis: i64, cut: Cut) -> Self {
        let count = cut.count();
        Self {
            axis,
            cuts: vec![cut],
            order: (0..count).collect(),
            joins: vec![1; count],
        }
    }
}

impl Operation {
    /// The word it is written with.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Operation::Regroup(_) => "axis",
            Operation::Permute(_) => "permute",
            Operation::Cast { from: None, .. } => "dtype",
            Operation::Cast { .. } => "src_dtype",
            Operation::Reshape(_) => "reshape",
            Operation::Pad { .. } => "pad",
            Operation::PadToMultiple { .. } => "pad_to_multiple",
            Operation::Unpad(_) => "unpad",
            Operation::Rotary { to_pairs: true, .. } => "interleave",
            Operation::Rotary { .. } => "deinterleave",
            Operation::Stack { .. } => "stack",
            Operation::Unstack { .. } => "unstack",
            Operation::Dequant(_) => "dequant",
            Operation::Quant(_) => "quant",
            Operation::Tie(_) | Operation::Untie => "tie",
        }
    }

    /// What it does, for messages.
    pub(crate) fn text(&self) -> String {
        match self {
            Operation::Regroup(regroup) => {
                let Regroup {
                    axis, cuts, joins, ..
                } = regroup;
                let cuts: Vec<usize> = cuts.iter().map(Cut::count).collect();
                format!("cut into {cuts:?} parts along dim {axis}, join {joins:?} of them")
            }
            Operation::Permute(order) => format!("permute {order:?}"),
            Operation::Cast { to, .. } => format!("cast to {}", crate::dtype::name(*to)),
            Operation::Reshape(shape) => format!("reshape to {shape:?}"),
            Operation::Pad { shape, .. } => format!("pad to {shape:?}"),
            Operation::PadToMultiple { multiple, dim, .. } => {
                format!("pad dim {dim} to a multiple of {multiple}")
            }
            Operation::Unpad(shape) => format!("cut down to {shape:?}"),
            Operation::Rotary { head, dim, .. } => format!("heads of {head} along dim {dim}"),
            Operation::Stack { dim } => format!("stack as dim {dim}"),
            Operation::Unstack { dim, .. } => format!("take dim {dim} apart"),
            Operation::Dequant(_) => "multiply by the scales".into(),
            Operation::Quant(_) => "divide by the scales".into(),
            Operation::Tie(_) | Operation::Untie => "the same tensor".into(),
        }
    }
}
