//! Memory that a save may hold on to.

use crate::parameters::Values;
use bytemuck::cast_slice;
use cairn_device::Memory;
use std::ops::Range;
use std::sync::Arc;

/// Memory that stays as it is for as long as anybody holds on to it: whoever changes it meanwhile changes a copy.
struct Kept<T>(Arc<T>);

impl AsRef<[u8]> for Kept<Values> {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for Kept<Vec<f32>> {
    fn as_ref(&self) -> &[u8] {
        cast_slice(&self.0)
    }
}

/// The bytes of shared numbers, of which parts can be saved.
#[derive(Debug)]
pub(crate) struct Parts {
    bytes: bytes::Bytes,
    width: usize,
}

impl Parts {
    pub(crate) fn of_values(values: &Arc<Values>) -> Self {
        Self {
            width: values.width(),
            bytes: bytes::Bytes::from_owner(Kept(values.clone())),
        }
    }

    pub(crate) fn of_numbers(numbers: &Arc<Vec<f32>>) -> Self {
        Self {
            width: size_of::<f32>(),
            bytes: bytes::Bytes::from_owner(Kept(numbers.clone())),
        }
    }

    /// The bytes of some elements.
    pub(crate) fn memory(&self, elements: Range<usize>) -> Memory {
        let range = elements.start * self.width..elements.end * self.width;
        Memory::bytes(self.bytes.slice(range))
    }
}
