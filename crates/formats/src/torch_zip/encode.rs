//! Archives of one tensor or value as `torch.load` reads them, around data that is written by somebody else.
//!
//! ```text
//! data.pkl  byteorder  version  header of data/0 │ the tensor's bytes │ descriptor of data/0  central directory
//! ╰────────────────── before ───────────────────╯                     ╰──────────────── after ────────────────╯
//! ```
//!
//! The checksum of a tensor is known once its bytes have passed. It therefore stands behind them, in a descriptor and in
//! the directory, as torch itself writes it.

use super::dtypes::{storage_of, torch_name};
use super::zip::Zip;
use crate::pickle::Writer;
use crate::plain;
use cairn_tensor::{DType, element_count, row_major_strides};
use serde_json::Value;

/// The bytes around a tensor's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What comes before the data.
    pub before: Vec<u8>,
    /// What comes after it.
    pub after: Vec<u8>,
    /// The length of the data.
    pub len_bytes: u64,
    /// Where in `after` the CRC-32 of the data belongs, four bytes from the lowest on. It is zero there.
    pub crc_at: [usize; 2],
}

/// The frame of a row-major tensor; `None` if torch has no such type, or its size overflows.
pub fn tensor_frame(dtype: DType, shape: &[usize]) -> Option<Frame> {
    let count = element_count(shape)?;
    let len_bytes = dtype.len_bytes(count)? as u64;
    let mut pickle = Writer::new();
    put_tensor(&mut pickle, "0", dtype, shape)?;
    let mut zip = Zip::new(&pickle.finish());
    zip.open("data/0", len_bytes, None);
    let before = zip.drain();
    let descriptor_crc = zip.describe(len_bytes);
    let directory_crc = zip.close();
    Some(Frame {
        before,
        after: zip.drain(),
        len_bytes,
        crc_at: [descriptor_crc, directory_crc[directory_crc.len() - 1]],
    })
}

/// The archive of a plain value; `None` if it holds what plain data cannot say.
pub fn value_archive(value: &Value) -> Option<Vec<u8>> {
    let mut pickle = Writer::new();
    plain::to_pickle(value, &mut pickle)?;
    Some(pickle_archive(pickle.finish()))
}

/// The archive of a pickle without tensors.
pub(super) fn pickle_archive(pickle: Vec<u8>) -> Vec<u8> {
    let mut zip = Zip::new(&pickle);
    zip.close();
    zip.drain()
}

/// Puts the call that rebuilds a row-major tensor from the storage `key`; `None` if torch has no such type.
pub(super) fn put_tensor(
    pickle: &mut Writer,
    key: &str,
    dtype: DType,
    shape: &[usize],
) -> Option<()> {
    let count = element_count(shape)?;
    let len_bytes = dtype.len_bytes(count)?;
    let name = torch_name(dtype).filter(|_| dtype.bits() >= 8)?;
    let storage = storage_of(dtype);
    pickle.global(match storage {
        Some(_) => "torch._utils._rebuild_tensor_v2",
        None => "torch._utils._rebuild_tensor_v3",
    });
    pickle.mark();
    pickle.mark();
    pickle.str("storage");
    pickle.global(storage.unwrap_or("torch.storage.UntypedStorage"));
    pickle.str(key);
    pickle.str("cpu");
    pickle.size(if storage.is_some() { count } else { len_bytes });
    pickle.tuple();
    pickle.persistent();
    pickle.int(0);
    pickle.sizes(shape);
    pickle.sizes(&row_major_strides(shape));
    pickle.bool(false);
    pickle.global("collections.OrderedDict");
    pickle.sizes(&[]);
    pickle.call();
    if storage.is_none() {
        pickle.global(name);
    }
    pickle.tuple();
    pickle.call();
    Some(())
}
