//! Archives as `torch.load` reads them, around data that is written by somebody else.
//!
//! ```text
//! data.pkl  byteorder  version  header of data/0 │ the tensor's bytes │ descriptor of data/0  central directory
//! ╰────────────────── before ───────────────────╯                     ╰──────────────── after ────────────────╯
//! ```
//!
//! The checksum of a tensor is known once its bytes have passed. It therefore stands behind them, in a descriptor and in
//! the directory, as torch itself writes it.

use super::dtypes::{storage_of, torch_name};
use crate::pickle::Writer;
use crate::plain;
use cairn_tensor::{DType, element_count, row_major_strides};
use crc_fast::{CrcAlgorithm, checksum};
use serde_json::Value;

/// Where data begins inside an archive: on multiples of this.
const ALIGNMENT: usize = 64;
/// Lengths from here on need the wide fields of a zip.
const WIDE: u64 = u32::MAX as u64;
/// The flag of an entry with a descriptor behind its data.
const DESCRIBED: usize = 1 << 3;
/// Where the checksum lies in a descriptor.
const DESCRIPTOR_CRC: usize = 4;
/// Where the checksum lies in an entry of the directory.
const DIRECTORY_CRC: usize = 16;

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
    let pickle = tensor_pickle(dtype, shape, count, len_bytes)?;
    let mut zip = Zip::new(pickle);
    zip.open("data/0", len_bytes, None);
    let mut after = descriptor(len_bytes);
    let (directory, last) = zip.directory(len_bytes + after.len() as u64);
    let crc_at = [DESCRIPTOR_CRC, after.len() + last + DIRECTORY_CRC];
    after.extend(directory);
    Some(Frame {
        before: zip.bytes,
        after,
        len_bytes,
        crc_at,
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
    let mut zip = Zip::new(pickle);
    let (directory, _) = zip.directory(0);
    zip.bytes.extend(directory);
    zip.bytes
}

/// The call that rebuilds a tensor from the storage `0`.
fn tensor_pickle(dtype: DType, shape: &[usize], count: usize, len_bytes: u64) -> Option<Vec<u8>> {
    let name = torch_name(dtype).filter(|_| dtype.bits() >= 8)?;
    let storage = storage_of(dtype);
    let mut pickle = Writer::new();
    pickle.global(match storage {
        Some(_) => "torch._utils._rebuild_tensor_v2",
        None => "torch._utils._rebuild_tensor_v3",
    });
    pickle.mark();
    pickle.mark();
    pickle.str("storage");
    pickle.global(storage.unwrap_or("torch.storage.UntypedStorage"));
    pickle.str("0");
    pickle.str("cpu");
    match storage {
        Some(_) => pickle.size(count),
        None => pickle.int(len_bytes.into()),
    }
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
    Some(pickle.finish())
}

/// A zip being written from front to back.
struct Zip {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    header: u64,
    len: u64,
    /// `None` if it comes in a descriptor behind the data.
    crc: Option<u32>,
}

impl Zip {
    /// An archive with the entries that every one has.
    fn new(pickle: Vec<u8>) -> Self {
        let mut zip = Self {
            bytes: Vec::new(),
            entries: Vec::new(),
        };
        zip.add("data.pkl", &pickle);
        zip.add("byteorder", b"little");
        zip.add("version", b"3\n");
        zip
    }

    fn add(&mut self, name: &str, data: &[u8]) {
        let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, data);
        let crc = u32::try_from(crc).expect("a CRC of 32 bits");
        self.open(name, data.len() as u64, Some(crc));
        self.bytes.extend(data);
    }

    /// Writes the header of an entry, padded so that its data is aligned.
    fn open(&mut self, name: &str, len: u64, crc: Option<u32>) {
        let name = format!("archive/{name}");
        let header = self.bytes.len() as u64;
        let mut extra = wide_field(len, &[len, len]);
        let start = self.bytes.len() + 30 + name.len() + extra.len() + 4;
        let padding = start.next_multiple_of(ALIGNMENT) - start;
        extra.extend(b"FB");
        extra.extend(two(padding));
        extra.resize(extra.len() + padding, b'Z');
        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(common(len, crc, &name, extra.len()));
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(extra);
        self.entries.push(Entry {
            name,
            header,
            len,
            crc,
        });
    }

    /// The end of the archive, if `more_len` bytes come before it, and where in it the last entry begins.
    fn directory(&self, more_len: u64) -> (Vec<u8>, usize) {
        let start = self.bytes.len() as u64 + more_len;
        let mut end = Vec::new();
        let mut last = 0;
        for entry in &self.entries {
            last = end.len();
            let extra = wide_field(entry.len, &[entry.len, entry.len]);
            end.extend(b"PK\x01\x02\0\0");
            end.extend(common(entry.len, entry.crc, &entry.name, extra.len()));
            // Comment, disk, attributes.
            end.extend([0; 10]);
            end.extend(four(entry.header));
            end.extend(entry.name.as_bytes());
            end.extend(extra);
        }
        let len = end.len() as u64;
        let count = self.entries.len();
        if start >= WIDE {
            end.extend(wide_end(count as u64, start, len));
        }
        end.extend(b"PK\x05\x06\0\0\0\0");
        end.extend(two(count));
        end.extend(two(count));
        end.extend(four(len));
        end.extend(four(start));
        end.extend([0; 2]);
        (end, last)
    }
}

/// Version, flags, method, time, checksum, lengths.
fn common(len: u64, crc: Option<u32>, name: &str, extra_len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(two(if len >= WIDE { 45 } else { 20 }));
    bytes.extend(two(if crc.is_none() { DESCRIBED } else { 0 }));
    bytes.extend([0; 6]);
    bytes.extend(crc.unwrap_or(0).to_le_bytes());
    bytes.extend(four(len));
    bytes.extend(four(len));
    bytes.extend(two(name.len()));
    bytes.extend(two(extra_len));
    bytes
}

/// What follows the data of an entry whose checksum was not known before: checksum and lengths.
fn descriptor(len: u64) -> Vec<u8> {
    let mut bytes = b"PK\x07\x08\0\0\0\0".to_vec();
    for len in [len, len] {
        match len >= WIDE {
            true => bytes.extend(len.to_le_bytes()),
            false => bytes.extend(four(len)),
        }
    }
    bytes
}

/// The extra field with `values`, if `len` needs it.
fn wide_field(len: u64, values: &[u64]) -> Vec<u8> {
    if len < WIDE {
        return Vec::new();
    }
    let mut field = two(1).to_vec();
    field.extend(two(8 * values.len()));
    field.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    field
}

/// The wide end record, and the record that says where it is.
fn wide_end(count: u64, start: u64, len: u64) -> Vec<u8> {
    let mut end = b"PK\x06\x06".to_vec();
    end.extend(44_u64.to_le_bytes());
    end.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for field in [count, count, len, start] {
        end.extend(field.to_le_bytes());
    }
    end.extend(b"PK\x06\x07\0\0\0\0");
    end.extend((start + len).to_le_bytes());
    end.extend(1_u32.to_le_bytes());
    end
}

fn two(value: usize) -> [u8; 2] {
    u16::try_from(value)
        .expect("short names and few entries")
        .to_le_bytes()
}

/// Four bytes, all ones if the value has its place elsewhere.
fn four(value: u64) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes()
}
