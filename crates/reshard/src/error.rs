//! Why a move cannot be planned or done.

use cairn_sharding::Region;
use cairn_tensor::DType;

/// Why a move was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Source and target are not the same tensor.
    #[error(
        "the source is {source_dtype}{source_shape:?} and the target {target_dtype}{target_shape:?}"
    )]
    Mismatch {
        /// The element type of the source.
        source_dtype: DType,
        /// The shape of the source.
        source_shape: Vec<usize>,
        /// The element type of the target.
        target_dtype: DType,
        /// The shape of the target.
        target_shape: Vec<usize>,
    },
    /// The target needs elements that no source rank holds.
    #[error("no source rank holds `{region}`, which target rank {rank} needs")]
    Uncovered {
        /// What is missing, or a part of it.
        region: Region,
        /// A rank that needs it.
        rank: usize,
    },
    /// Some elements of a type smaller than a byte do not fill whole bytes.
    #[error("{elements} elements of {dtype} do not fill whole bytes")]
    PartialByte {
        /// The element type.
        dtype: DType,
        /// How many elements would be copied or held.
        elements: usize,
    },
    /// A rank has no buffer.
    #[error("there is no {side} buffer for rank {rank}: {count} were given")]
    NoBuffer {
        /// "source" or "target".
        side: &'static str,
        /// The rank.
        rank: usize,
        /// How many buffers there are, for ranks from 0.
        count: usize,
    },
    /// A rank's source buffer has the wrong size.
    #[error("the source buffer of rank {rank} has {actual} bytes instead of {expected}")]
    BufferLength {
        /// The rank.
        rank: usize,
        /// The bytes its pieces have.
        expected: usize,
        /// The bytes the buffer has.
        actual: usize,
    },
    /// A copy or a reduction failed.
    #[error(transparent)]
    Tensor(#[from] cairn_tensor::Error),
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Mismatch { .. } => {
                Some("a plan moves a tensor; cast or reshape it before or after".to_owned())
            }
            Error::Uncovered { .. } => {
                Some("list the missing pieces, or ask for less of the tensor".to_owned())
            }
            Error::PartialByte { dtype, .. } => Some(format!(
                "cut dims so that every part has a multiple of {} elements",
                8 / gcd(8, dtype.bits())
            )),
            Error::Tensor(error) => error.hint(),
            _ => None,
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
