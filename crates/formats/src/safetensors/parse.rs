//! Bytes → [`Header`], refusing everything the format forbids.

use super::{Entry, Header, MAX_HEADER_BYTES, MAX_TENSORS, METADATA_KEY};
use crate::Error;
use cairn_store::{ObjectReader, Store};
use cairn_tensor::{DType, element_count};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// Reads and checks the header of the file under `key`.
///
/// # Errors
/// [`Error::Header`] if the file is not valid safetensors, [`Error::Store`] if it cannot be read.
pub fn read(store: &dyn Store, key: &str) -> Result<Header, Error> {
    let reader = store.reader(key)?;
    read_at(key, reader.as_ref(), 0)
}

/// Reads and checks the header of a file that begins at byte `start` of another one, called `key` in errors, and ends with it.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_at(key: &str, reader: &dyn ObjectReader, start: u64) -> Result<Header, Error> {
    let file_len = reader.len().saturating_sub(start);
    let mut prefix = vec![0; if file_len < 8 { 0 } else { 8 }];
    reader.read_at(start, &mut prefix)?;
    let len = header_len(key, &prefix, file_len)?;
    let mut bytes = vec![0; len];
    reader.read_at(start + 8, &mut bytes)?;
    parse(key, &bytes, file_len)
}

/// Parses the JSON `header` (without its eight length bytes) of a file of `file_len` bytes, called `file` in errors.
///
/// # Errors
/// [`Error::Header`], naming the tensor and the rule it breaks.
pub fn parse(file: &str, header: &[u8], file_len: u64) -> Result<Header, Error> {
    let fail = |reason: String| Error::Header {
        file: file.to_string(),
        reason,
    };
    if header.first() != Some(&b'{') {
        return Err(fail("the header does not start with `{`".into()));
    }
    let raw: RawHeader =
        serde_json::from_slice(header).map_err(|e| fail(format!("the header is not JSON: {e}")))?;
    if raw.entries.len() > MAX_TENSORS {
        let count = raw.entries.len();
        return Err(fail(format!(
            "{count} tensors are over the limit of {MAX_TENSORS} for a file"
        )));
    }
    let mut entries = Vec::with_capacity(raw.entries.len());
    for (name, entry) in raw.entries {
        entries.push(check_entry(name, entry).map_err(fail)?);
    }
    entries.sort_by_key(|entry| (entry.begin, entry.end));
    check_cover(&entries).map_err(fail)?;
    let parsed = Header {
        entries,
        metadata: raw.metadata,
        data_start: 8 + header.len() as u64,
    };
    if parsed.file_len() != file_len {
        return Err(fail(format!(
            "the header describes {} bytes, the file has {file_len}",
            parsed.file_len()
        )));
    }
    Ok(parsed)
}

fn header_len(file: &str, prefix: &[u8], file_len: u64) -> Result<usize, Error> {
    let fail = |reason: String| Error::Header {
        file: file.to_string(),
        reason,
    };
    let bytes: [u8; 8] = prefix
        .try_into()
        .map_err(|_| fail(format!("the file has only {file_len} bytes")))?;
    let len = u64::from_le_bytes(bytes);
    if len > MAX_HEADER_BYTES {
        return Err(fail(format!(
            "a header of {len} bytes is over the limit of {MAX_HEADER_BYTES}"
        )));
    }
    if len > file_len.saturating_sub(8) {
        return Err(fail(format!(
            "the header should have {len} bytes, the file ends after {file_len}"
        )));
    }
    usize::try_from(len).map_err(|_| fail("the header does not fit in memory".into()))
}

fn check_entry(name: String, raw: RawEntry) -> Result<Entry, String> {
    let dtype: DType = raw
        .dtype
        .parse()
        .map_err(|e| format!("tensor `{name}`: {e}"))?;
    let [begin, end] = raw.data_offsets;
    let wanted = element_count(&raw.shape)
        .and_then(|count| dtype.len_bytes(count))
        .ok_or_else(|| {
            format!(
                "tensor `{name}`: shape {:?} has no byte length as {dtype}",
                raw.shape
            )
        })?;
    if begin > end || end - begin != wanted as u64 {
        return Err(format!(
            "tensor `{name}` takes bytes {begin}..{end}, but {dtype}{:?} needs {wanted}",
            raw.shape
        ));
    }
    Ok(Entry {
        name,
        dtype,
        shape: raw.shape,
        begin,
        end,
    })
}

/// Every data byte belongs to exactly one tensor.
fn check_cover(sorted: &[Entry]) -> Result<(), String> {
    let mut position = 0;
    for entry in sorted {
        if entry.begin != position {
            let what = if entry.begin > position {
                "a hole"
            } else {
                "an overlap"
            };
            return Err(format!(
                "{what} before tensor `{}`: it starts at byte {}, the one before ends at {position}",
                entry.name, entry.begin
            ));
        }
        position = entry.end;
    }
    Ok(())
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// The JSON object as it stands, with repeated names refused.
struct RawHeader {
    entries: Vec<(String, RawEntry)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawHeaderVisitor)
    }
}

struct RawHeaderVisitor;

impl<'de> Visitor<'de> for RawHeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut raw = RawHeader {
            entries: Vec::new(),
            metadata: BTreeMap::new(),
        };
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(serde::de::Error::custom(format!(
                    "the name `{name}` occurs twice"
                )));
            }
            if name == METADATA_KEY {
                raw.metadata = map.next_value()?;
            } else {
                raw.entries.push((name, map.next_value()?));
            }
        }
        Ok(raw)
    }
}
