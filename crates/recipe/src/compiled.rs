//! What a program comes to: where each element of each target is from.

use crate::dtype;
use cairn_sharding::Region;
use cairn_tensor::DType;
use std::collections::BTreeMap;
use std::fmt;

/// A program compiled against the tensors it will find.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Compiled {
    /// The tensors it makes, by name.
    pub targets: BTreeMap<String, Target>,
    /// Sources that nothing is made of, on purpose.
    pub dropped: Vec<String>,
    /// What the writer of the program may want to know.
    pub warnings: Vec<String>,
}

/// A tensor that a program makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Where its elements are from: every element is in one piece. `None` if no source feeds it and the model keeps its own value.
    pub pieces: Option<Vec<Piece>>,
}

/// A box of a target, and what it is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Where it lies in the target.
    pub region: Region,
    /// What is read for it; `None` for a constant, which its only step gives.
    pub source: Option<SourceBox>,
    /// What is done to that, in order, to give the elements of `region`.
    pub steps: Vec<Step>,
}

/// A box of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceBox {
    /// The name of the source.
    pub name: String,
    /// Which elements of it.
    pub region: Region,
}

/// Something done to a box.
///
/// A further variant may come with a new operation; whoever executes steps must know them all.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Dim `i` of the result is dim `permute[i]` of what was there.
    Permute(Vec<usize>),
    /// The same elements in row-major order, in another shape.
    Reshape(Vec<usize>),
    /// The same values in another element type.
    Cast(DType),
    /// Every element is this value: rows that pad a vocabulary. It is the only step of a piece without a source.
    Fill(f64),
    /// Only these elements of what was there: where a box of the result is no box of what it is made of.
    Slice(Region),
    /// The same bytes as elements of another type: the last dim grows or shrinks with their size.
    Reinterpret {
        /// The type they had.
        from: DType,
        /// The type they are read as.
        to: DType,
    },
    /// Elements times the scale of their block, computed and left in `F32`:
    /// element `i` is multiplied by element `(i + phase) / block` of the scales, in each dim.
    Dequant {
        /// The scales, with as many dims as the box.
        scales: Operand,
        /// How many elements share a scale, in each dim.
        block: Vec<usize>,
        /// Where in its first block the box begins, in each dim.
        phase: Vec<usize>,
    },
    /// Elements divided by the scale of their block (as [`Step::QuantScales`] gives it), computed in `F32` and rounded to `dtype`.
    /// The box begins at a block.
    Quant {
        /// The type of the result.
        dtype: DType,
        /// How many elements share a scale, in each dim.
        block: Vec<usize>,
    },
    /// The scale of each block, in `F32`: the greatest magnitude in it, divided by the greatest finite value of `dtype`;
    /// for `F4` the greatest power of two not above that magnitude, divided by four, as the Open Compute Project defines
    /// its microscaling formats; one for a block of zeros. The box begins at a block.
    QuantScales {
        /// The type that the elements are quantised to.
        dtype: DType,
        /// How many elements share a scale, in each dim.
        block: Vec<usize>,
    },
}

/// A second tensor that a step needs: a box of a source, after steps of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    /// What is read for it.
    pub source: SourceBox,
    /// What is done to that, in order.
    pub steps: Vec<Step>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Permute(order) => write!(f, "permute {order:?}"),
            Step::Reshape(shape) => write!(f, "reshape {shape:?}"),
            Step::Cast(to) => write!(f, "cast {}", dtype::name(*to)),
            Step::Fill(value) => write!(f, "fill {value}"),
            Step::Slice(region) => write!(f, "slice {region}"),
            Step::Reinterpret { to, .. } => write!(f, "reinterpret {}", dtype::name(*to)),
            Step::Dequant { scales, block, .. } => {
                write!(f, "dequant {block:?} by {}", scales.source.name)
            }
            Step::Quant { dtype, block } => write!(f, "quant {} {block:?}", dtype::name(*dtype)),
            Step::QuantScales { block, .. } => write!(f, "scales of {block:?}"),
        }
    }
}
