//! Averages in 64 bits, rounded to the type of the tensor.

use crate::computed::Formula;
use crate::source::StoredTensor;
use crate::{Error, pool};
use cairn_store::Location;
use cairn_tensor::{DType, Overflow, cast};
use std::ops::Range;

/// The elements that are worked out at once.
const STRETCH_ELEMENTS: usize = 1 << 20;

/// The most memory that working out averages takes beside a load's own: for each of its threads the values, the
/// averages and the source of a stretch, and what is read.
pub const MAX_COMPUTED_BUFFER_BYTES: usize = 4 * (3 * 8 * STRETCH_ELEMENTS + pool::CHUNK_BYTES);

/// How averages are worked out.
pub(super) trait Values: Send + Sync {
    /// Fills `values` with the elements `elements`, in row-major order, of the tensor `name`: little-endian `f64`.
    fn values(&self, name: &str, elements: Range<usize>, values: &mut [u8]) -> Result<(), Error>;

    /// Where they are read from.
    fn places(&self) -> Vec<Location>;
}

/// A formula whose values are rounded once, at the end.
pub(super) struct Rounded<V>(pub(super) V);

impl<V: Values> Formula for Rounded<V> {
    fn places(&self) -> Vec<Location> {
        self.0.places()
    }

    fn fill(
        &self,
        name: &str,
        tensor: &StoredTensor,
        elements: Range<usize>,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let width = tensor.dtype.bits() / 8;
        let mut first = elements.start;
        let mut values = vec![0; 8 * STRETCH_ELEMENTS.min(elements.len())];
        for part in bytes.chunks_mut(STRETCH_ELEMENTS * width) {
            let count = part.len() / width;
            let values = &mut values[..8 * count];
            self.0.values(name, first..first + count, values)?;
            let rounded = cast(DType::F64, tensor.dtype, values, part, Overflow::Native);
            rounded.map_err(|source| Error::Copy {
                name: name.to_string(),
                source,
            })?;
            first += count;
        }
        Ok(())
    }
}
