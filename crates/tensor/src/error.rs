//! What can go wrong, and what to do next.

use crate::{DType, ReduceOp};

/// Why an operation on elements or layouts was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No element type has this name.
    #[error("unknown dtype `{name}`")]
    UnknownDType {
        /// The name as given.
        name: String,
    },
    /// No reduction has this name.
    #[error("unknown reduction `{name}`")]
    UnknownReduceOp {
        /// The name as given.
        name: String,
    },
    /// The two boxes of a copy have different shapes.
    #[error("cannot copy a box of shape {source_shape:?} into one of shape {target_shape:?}")]
    ShapeMismatch {
        /// The shape of the source box.
        source_shape: Vec<usize>,
        /// The shape of the target box.
        target_shape: Vec<usize>,
    },
    /// A box has a different number of dims and strides.
    #[error("a box of {dims} dims has {strides} strides")]
    RankMismatch {
        /// The number of dims.
        dims: usize,
        /// The number of strides.
        strides: usize,
    },
    /// A run of elements smaller than a byte starts or ends inside one.
    #[error("a run of `{dtype}` elements starts or ends inside a byte")]
    InsideByte {
        /// The element type.
        dtype: DType,
    },
    /// A size or an offset does not fit the address space.
    #[error("the size of a tensor overflows the address space")]
    TooLarge,
    /// A copy reaches past the end of a buffer.
    #[error("the copy needs {end} bytes of the {buffer} buffer, which has {len}")]
    OutOfBounds {
        /// Which buffer: `source` or `target`.
        buffer: &'static str,
        /// One past the last byte needed.
        end: usize,
        /// The length of the buffer in bytes.
        len: usize,
    },
    /// A run lies outside the part of the source at hand.
    #[error(
        "the run {start}..{end} lies outside the source bytes {base}..{}",
        base.saturating_add(*len)
    )]
    OutsideSource {
        /// Where the run starts in the source.
        start: usize,
        /// Where it ends.
        end: usize,
        /// Where the part at hand starts in the source.
        base: usize,
        /// The length of the part at hand in bytes.
        len: usize,
    },
    /// A buffer does not hold the expected number of elements.
    #[error("the {buffer} buffer of {len} bytes should hold {expected} bytes of `{dtype}`")]
    WrongLength {
        /// Which buffer: `source`, `target` or `accumulator`.
        buffer: &'static str,
        /// Its element type.
        dtype: DType,
        /// Its length in bytes.
        len: usize,
        /// The length it should have in bytes.
        expected: usize,
    },
    /// A buffer ends inside an element.
    #[error("a buffer of {len} bytes does not hold a whole number of `{dtype}` elements")]
    PartialElement {
        /// The element type.
        dtype: DType,
        /// The length of the buffer in bytes.
        len: usize,
    },
    /// So many elements would end inside a byte.
    #[error("{elements} elements of `{dtype}` do not fill whole bytes")]
    PartialByte {
        /// The element type.
        dtype: DType,
        /// The number of elements.
        elements: usize,
    },
    /// There is no conversion between these two types.
    #[error("cannot cast `{from}` to `{to}`")]
    UnsupportedCast {
        /// The source type.
        from: DType,
        /// The target type.
        to: DType,
    },
    /// The reduction has no meaning for the type.
    #[error("cannot reduce `{dtype}` by `{op}`")]
    UnsupportedReduce {
        /// The reduction.
        op: ReduceOp,
        /// The element type.
        dtype: DType,
    },
    /// Elements of this type are not averaged.
    #[error("cannot average `{dtype}`")]
    UnsupportedAverage {
        /// The element type.
        dtype: DType,
    },
    /// An average over nothing.
    #[error("cannot average over zero contributions")]
    EmptyAverage,
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::UnknownDType { .. } => Some(choices("a dtype", DType::ALL)),
            Error::UnknownReduceOp { .. } => Some(choices("a reduction", ReduceOp::ALL)),
            Error::InsideByte { dtype } => {
                let step = if dtype.bits() == 4 { 2 } else { 4 };
                Some(format!(
                    "cut `{dtype}` tensors at multiples of {step} elements, or cast them first"
                ))
            }
            Error::UnsupportedCast { .. } => {
                Some("take the real or the imaginary part first".to_owned())
            }
            Error::UnsupportedReduce { dtype, .. } => Some(choices(
                &format!("a reduction of `{dtype}`"),
                ReduceOp::ALL.into_iter().filter(|op| op.applies_to(*dtype)),
            )),
            Error::UnsupportedAverage { .. } => {
                let floats = [DType::F32, DType::Bf16, DType::F16, DType::F64];
                Some(choices("the type of what is averaged", floats))
            }
            _ => None,
        }
    }
}

fn choices(what: &str, names: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    format!("{what} is one of {}", names.join(", "))
}
