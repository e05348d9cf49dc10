//! A writer's receipt: what it wrote, with checksums, created once its bytes are durable.
//!
//! Two lines. The first is a sealed JSON object and all a committer reads; the second is the table of block CRCs of the data
//! file, eight hexadecimal digits each, which a reader of that file needs.

use crate::Error;
use crate::checksum::{BLOCK_BYTES, crcs_from_text, crcs_to_text, sha256_hex};
use crate::error::StoreContext;
use crate::layout::Layout;
use crate::manifest::{FORMAT_VERSION, check_version};
use crate::names::{AttemptKeys, data_file};
use crate::seal::{seal, unseal};
use cairn_store::{PutMode, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The bytes of a part that are read to find its first line; most parts are shorter.
const HEAD_BYTES: usize = 64 << 10;

/// The data file of a writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// Its name inside the attempt.
    pub(crate) name: String,
    /// Its length.
    pub(crate) len_bytes: u64,
    /// Where tensor data starts in it.
    pub(crate) data_start: u64,
    /// The bytes each CRC covers.
    pub(crate) block_bytes: u64,
    /// SHA-256 of the line of CRCs.
    pub(crate) crcs_sha256: String,
}

/// A small file that travels with the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetEntry {
    /// Its length.
    pub len_bytes: u64,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// The first line of a part.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) step: u64,
    pub(crate) attempt: String,
    pub(crate) writer: usize,
    pub(crate) world: usize,
    pub(crate) created: String,
    pub(crate) layout_hash: u64,
    pub(crate) layout: Layout,
    pub(crate) file: Option<FileEntry>,
    pub(crate) values: BTreeMap<String, Value>,
    pub(crate) rank_values: BTreeMap<String, Value>,
    pub(crate) tags: Vec<String>,
    pub(crate) assets: BTreeMap<String, AssetEntry>,
}

/// A part as it was read, with the digest that the manifest names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReadPart {
    pub(crate) part: Part,
    pub(crate) digest: String,
}

impl FileEntry {
    pub(crate) fn new(writer: usize, len_bytes: u64, data_start: u64, crcs: &[u32]) -> Self {
        Self {
            name: data_file(writer),
            len_bytes,
            data_start,
            block_bytes: BLOCK_BYTES as u64,
            crcs_sha256: sha256_hex(crcs_to_text(crcs).as_bytes()),
        }
    }
}

impl Part {
    /// The part's bytes.
    pub(crate) fn encode(&self, crcs: &[u32]) -> Vec<u8> {
        let mut members = Map::new();
        members.insert("cairn".into(), json!(FORMAT_VERSION));
        members.insert("kind".into(), json!("part"));
        members.insert("step".into(), json!(self.step));
        members.insert("attempt".into(), json!(self.attempt));
        members.insert("writer".into(), json!(self.writer));
        members.insert("world".into(), json!(self.world));
        members.insert("created".into(), json!(self.created));
        members.insert("layout".into(), json!(format!("{:016x}", self.layout_hash)));
        members.insert("file".into(), json!(self.file));
        self.layout.write_json(&mut members);
        members.insert("values".into(), json!(self.values));
        members.insert("rank_values".into(), json!(self.rank_values));
        members.insert("tags".into(), json!(self.tags));
        members.insert("assets".into(), json!(self.assets));
        let (mut text, _) = seal(&members);
        text.push_str(&crcs_to_text(crcs));
        text.push('\n');
        text.into_bytes()
    }

    /// Writes the part: from now on its writer is done.
    pub(crate) fn put(
        &self,
        store: &dyn Store,
        keys: &AttemptKeys,
        crcs: &[u32],
    ) -> Result<(), Error> {
        let key = keys.part(self.writer);
        store
            .put(&key, &self.encode(crcs), PutMode::Create)
            .doing(|| format!("write `{key}`"))
    }

    fn decode(members: &Map<String, Value>) -> Result<Self, String> {
        let layout_hash: String = field(members, "layout")?;
        Ok(Self {
            step: field(members, "step")?,
            attempt: field(members, "attempt")?,
            writer: field(members, "writer")?,
            world: field(members, "world")?,
            created: field(members, "created")?,
            layout_hash: u64::from_str_radix(&layout_hash, 16)
                .map_err(|e| format!("`layout`: {e}"))?,
            layout: Layout::read_json(members)?,
            file: field(members, "file")?,
            values: field(members, "values")?,
            rank_values: field(members, "rank_values")?,
            tags: field(members, "tags")?,
            assets: field(members, "assets")?,
        })
    }
}

/// Reads member `key` of a document.
pub(crate) fn field<T: serde::de::DeserializeOwned>(
    members: &Map<String, Value>,
    key: &str,
) -> Result<T, String> {
    let value = members.get(key).cloned().unwrap_or(Value::Null);
    serde_json::from_value(value).map_err(|e| format!("`{key}`: {e}"))
}

/// Parses the first line of a part; `file` names it in errors.
pub(crate) fn parse_head(file: &str, line: &[u8]) -> Result<ReadPart, Error> {
    let sealed = unseal(line).map_err(|reason| Error::damaged(file, reason))?;
    check_version(file, &sealed.members)?;
    let part = Part::decode(&sealed.members).map_err(|reason| Error::damaged(file, reason))?;
    Ok(ReadPart {
        part,
        digest: sealed.digest,
    })
}

/// Reads the first line of `writer`'s part.
pub(crate) fn read_head(
    store: &dyn Store,
    keys: &AttemptKeys,
    writer: usize,
) -> Result<ReadPart, Error> {
    let key = keys.part(writer);
    let doing = || format!("read `{key}`");
    let head = store.get_prefix(&key, HEAD_BYTES).doing(doing)?;
    let part = match first_line(&head) {
        Some(line) => parse_head(&key, line)?,
        None => {
            let whole = store.get(&key).doing(doing)?;
            parse_head(&key, first_line(&whole).unwrap_or(&whole))?
        }
    };
    check_place(&key, &part.part, keys, writer)?;
    Ok(part)
}

/// Reads `writer`'s part with its table of CRCs.
pub(crate) fn read_whole(
    store: &dyn Store,
    keys: &AttemptKeys,
    writer: usize,
) -> Result<(ReadPart, Vec<u32>), Error> {
    let key = keys.part(writer);
    let bytes = store.get(&key).doing(|| format!("read `{key}`"))?;
    let (part, crcs) = parse_whole(&key, &bytes)?;
    check_place(&key, &part.part, keys, writer)?;
    Ok((part, crcs))
}

/// Parses both lines of a part.
pub(crate) fn parse_whole(file: &str, bytes: &[u8]) -> Result<(ReadPart, Vec<u32>), Error> {
    let line = first_line(bytes).unwrap_or(bytes);
    let part = parse_head(file, line)?;
    let damaged = |reason: &str| Error::damaged(file, reason);
    let table = bytes[line.len()..]
        .strip_suffix(b"\n")
        .and_then(|table| std::str::from_utf8(table).ok())
        .ok_or_else(|| damaged("its table of checksums is cut short"))?;
    let crcs = crcs_from_text(table).ok_or_else(|| damaged("its table of checksums is garbled"))?;
    let Some(entry) = &part.part.file else {
        return match crcs.is_empty() {
            true => Ok((part, crcs)),
            false => Err(damaged("it has checksums of no file")),
        };
    };
    if sha256_hex(table.as_bytes()) != entry.crcs_sha256 {
        return Err(damaged(
            "its table of checksums does not fit its own digest",
        ));
    }
    let blocks = entry.len_bytes.div_ceil(BLOCK_BYTES as u64);
    if entry.block_bytes != BLOCK_BYTES as u64 || crcs.len() as u64 != blocks {
        return Err(damaged("its table of checksums does not fit its file"));
    }
    Ok((part, crcs))
}

/// A part that was moved or renamed is as bad as a damaged one.
fn check_place(key: &str, part: &Part, keys: &AttemptKeys, writer: usize) -> Result<(), Error> {
    let own = AttemptKeys::new(part.step, &part.attempt);
    if own == *keys && part.writer == writer {
        return Ok(());
    }
    let reason = format!(
        "it is the part of writer {} in `{}`, in the wrong place",
        part.writer, own.folder
    );
    Err(Error::damaged(key, reason))
}

fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some(&bytes[..=end])
}
