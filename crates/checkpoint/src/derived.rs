//! Tensors that are not stored, because they are casts of tensors that are.
//!
//! A model trained in `bf16` beside `f32` master weights has every weight twice, and the second is `bf16(master)`. Once that is
//! [checked](hold) the state [says so](crate::State::derive) instead of storing it. To a reader the tensor is there: its bytes
//! are worked out from the stored ones as they are read, wherever they lie and on any layout.

mod check;
mod reader;

use cairn_tensor::DType;

pub use check::{Claim, hold};
pub(crate) use reader::cast_file;

/// How a tensor follows from a stored one: element by element, rounded to the nearest, ties to even.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The stored tensor, of type [`DERIVED_FROM`]. Shape and placement are the same.
    pub of: String,
    /// The type it is cast to, one of [`DERIVED_DTYPES`].
    pub dtype: DType,
}

/// The type that tensors are derived from.
pub const DERIVED_FROM: DType = DType::F32;

/// The types a tensor can be derived in.
pub const DERIVED_DTYPES: [DType; 2] = [DType::Bf16, DType::F16];

/// How many bytes of the stored tensor stand for one of the derived one.
const NARROWING: usize = 2;

/// The number of the imagined file that has `writer`'s `f32` tensors in `dtype`; real files count from 0 to `writers`.
pub(crate) fn imagined_file(writers: usize, writer: usize, dtype: DType) -> usize {
    let kind = DERIVED_DTYPES.iter().position(|known| *known == dtype);
    (1 + kind.unwrap_or(0)) * writers + writer
}

/// The writer and type of an imagined file.
pub(crate) fn imagined(writers: usize, file: usize) -> Option<(usize, DType)> {
    let kind = file.checked_div(writers)?.checked_sub(1)?;
    Some((file % writers, *DERIVED_DTYPES.get(kind)?))
}

/// Where the bytes at `offset` of a file's data lie in the imagined one.
pub(crate) fn narrowed(offset: u64) -> u64 {
    offset / NARROWING as u64
}

#[cfg(test)]
mod tests {
    //! Imagined files are told apart from each other and from real ones.

    use super::*;

    #[test]
    fn an_imagined_file_has_a_number_of_its_own() {
        for writers in [1, 2, 7] {
            for writer in 0..writers {
                assert_eq!(imagined(writers, writer), None);
                for dtype in DERIVED_DTYPES {
                    let file = imagined_file(writers, writer, dtype);
                    assert_eq!(imagined(writers, file), Some((writer, dtype)));
                }
            }
        }
        assert_eq!(imagined(0, 0), None);
        assert_eq!(imagined(1, usize::MAX), None);
    }
}
