//! A writer's receipt: what it wrote, with checksums, created once its bytes are durable.
//!
//! Two lines. The first is a sealed JSON object and all a committer reads; the second is the table of block CRCs of the data
//! file, eight hexadecimal digits each, which a reader of that file needs. If the file is a delta, a third line says where its blocks lie.

use crate::Error;
use crate::checksum::{BLOCK_BYTES, crcs_from_text, crcs_to_text, sha256_hex};
use crate::delta::{self, BlockMap, DeltaEntry};
use crate::error::StoreContext;
use crate::layout::Layout;
use crate::lines::Parent;
use crate::manifest::{check_version, put_version};
use crate::names::{AttemptKeys, data_file};
use crate::packed::{self, PackedEntry};
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
    /// Where its bytes lie, if it is not one file but blocks of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delta: Option<DeltaEntry>,
    /// What was stored instead of it, or of what is new of it, if that is packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) packed: Option<PackedEntry>,
}

/// What a part says of the blocks of its data file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Blocks {
    /// The CRC of each.
    pub(crate) crcs: Vec<u32>,
    /// Where each lies, if the file is a delta.
    pub(crate) map: Option<BlockMap>,
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
    /// The attempt that this one writes anew.
    pub(crate) rewrite_of: Option<String>,
    pub(crate) writer: usize,
    pub(crate) world: usize,
    pub(crate) created: String,
    /// The launch that saved it; parts of earlier versions do not say.
    pub(crate) launch: Option<String>,
    /// Of writer 0: the line that the step belongs to.
    pub(crate) line: u64,
    /// Of writer 0: the committed step that came before, if that is known.
    pub(crate) parent: Option<Parent>,
    /// Of writer 0: the attempt at the step that this one takes the place of, because its line was abandoned.
    pub(crate) replaces: Option<String>,
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
            delta: None,
            packed: None,
        }
    }

    /// Whether two files have the same bytes, wherever these lie.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        let content = |file: &Self| (file.len_bytes, file.data_start, file.block_bytes);
        content(self) == content(other) && self.crcs_sha256 == other.crcs_sha256
    }

    /// The bytes of it that its writer wrote, before they were packed.
    pub(crate) fn own_bytes(&self) -> u64 {
        let delta = self.delta.as_ref();
        delta.map_or(self.len_bytes, |delta| delta.stored_bytes)
    }

    /// The bytes that its writer wrote.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let packed = self.packed.as_ref();
        packed.map_or_else(|| self.own_bytes(), |packed| packed.stored_bytes)
    }

    /// What whoever reads it must know.
    pub(crate) fn needs(&self) -> Vec<&'static str> {
        let delta = self.delta.as_ref().map(|_| delta::FEATURE);
        let packed = self.packed.as_ref().map(|_| packed::FEATURE);
        delta.into_iter().chain(packed).collect()
    }
}

impl Part {
    /// The part's bytes.
    pub(crate) fn encode(&self, crcs: &[u32], map: Option<&BlockMap>) -> Vec<u8> {
        let mut members = Map::new();
        let needs = self.file.as_ref().map(FileEntry::needs);
        put_version(&mut members, &needs.unwrap_or_default());
        members.insert("kind".into(), json!("part"));
        members.insert("step".into(), json!(self.step));
        members.insert("attempt".into(), json!(self.attempt));
        if let Some(attempt) = &self.rewrite_of {
            members.insert("rewrite_of".into(), json!(attempt));
        }
        members.insert("writer".into(), json!(self.writer));
        members.insert("world".into(), json!(self.world));
        members.insert("created".into(), json!(self.created));
        put_origin(
            &mut members,
            self.launch.as_ref(),
            self.line,
            self.parent.as_ref(),
        );
        if let Some(attempt) = &self.replaces {
            members.insert("replaces".into(), json!(attempt));
        }
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
        if let Some(map) = map {
            text.push_str(&map.to_text());
            text.push('\n');
        }
        text.into_bytes()
    }

    /// Writes the part, and returns its bytes: from now on its writer is done.
    pub(crate) fn put(
        &self,
        store: &dyn Store,
        keys: &AttemptKeys,
        crcs: &[u32],
        map: Option<&BlockMap>,
    ) -> Result<Vec<u8>, Error> {
        let (key, bytes) = (keys.part(self.writer), self.encode(crcs, map));
        store
            .put(&key, &bytes, PutMode::Create)
            .doing(|| format!("write `{key}`"))?;
        Ok(bytes)
    }

    fn decode(members: &Map<String, Value>) -> Result<Self, String> {
        let layout_hash: String = field(members, "layout")?;
        Ok(Self {
            step: field(members, "step")?,
            attempt: field(members, "attempt")?,
            rewrite_of: field(members, "rewrite_of")?,
            writer: field(members, "writer")?,
            world: field(members, "world")?,
            created: field(members, "created")?,
            launch: field(members, "launch")?,
            line: line_field(members)?,
            parent: field(members, "parent")?,
            replaces: field(members, "replaces")?,
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

/// Says which launch saved a step, on which line and after which step.
pub(crate) fn put_origin(
    members: &mut Map<String, Value>,
    launch: Option<&String>,
    line: u64,
    parent: Option<&Parent>,
) {
    if let Some(launch) = launch {
        members.insert("launch".into(), json!(launch));
    }
    if line > 0 {
        members.insert("line".into(), json!(line));
    }
    if let Some(parent) = parent {
        members.insert("parent".into(), json!(parent));
    }
}

/// The line that a document names; steps of a run that never went back are on line 0.
pub(crate) fn line_field(members: &Map<String, Value>) -> Result<u64, String> {
    Ok(field::<Option<u64>>(members, "line")?.unwrap_or(0))
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

/// Reads `writer`'s part with what it says of blocks.
pub(crate) fn read_whole(
    store: &dyn Store,
    keys: &AttemptKeys,
    writer: usize,
) -> Result<(ReadPart, Blocks), Error> {
    let key = keys.part(writer);
    let bytes = store.get(&key).doing(|| format!("read `{key}`"))?;
    let (part, blocks) = parse_whole(&key, &bytes)?;
    check_place(&key, &part.part, keys, writer)?;
    Ok((part, blocks))
}

/// Parses all lines of a part.
pub(crate) fn parse_whole(file: &str, bytes: &[u8]) -> Result<(ReadPart, Blocks), Error> {
    let line = first_line(bytes).unwrap_or(bytes);
    let part = parse_head(file, line)?;
    let rest = &bytes[line.len()..];
    let delta = part.part.file.as_ref().and_then(|file| file.delta.as_ref());
    // Only a delta has a line behind its table.
    let (table, map) = match delta.and_then(|_| first_line(rest)) {
        Some(table) => rest.split_at(table.len()),
        None => (rest, &[][..]),
    };
    let crcs = parse_crcs(file, &part.part, table)?;
    let map = delta
        .map(|delta| parse_map(delta, crcs.len() as u64, map))
        .transpose()
        .map_err(|reason| Error::damaged(file, reason))?;
    Ok((part, Blocks { crcs, map }))
}

/// Parses the line that says where the blocks of a delta lie.
fn parse_map(delta: &DeltaEntry, blocks: u64, line: &[u8]) -> Result<BlockMap, String> {
    let text = line
        .strip_suffix(b"\n")
        .and_then(|text| std::str::from_utf8(text).ok())
        .ok_or("its map of blocks is cut short")?;
    if sha256_hex(text.as_bytes()) != delta.map_sha256 {
        return Err("its map of blocks does not fit its own digest".into());
    }
    let map = BlockMap::from_text(text, blocks, delta.bases.len())?;
    match map.blocks_of(0).checked_mul(BLOCK_BYTES as u64) {
        Some(own) if own <= delta.stored_bytes => Ok(map),
        _ => Err("its map of blocks does not fit its file".into()),
    }
}

/// Parses the line of CRCs.
fn parse_crcs(file: &str, part: &Part, line: &[u8]) -> Result<Vec<u32>, Error> {
    let damaged = |reason: &str| Error::damaged(file, reason);
    let table = line
        .strip_suffix(b"\n")
        .and_then(|table| std::str::from_utf8(table).ok())
        .ok_or_else(|| damaged("its table of checksums is cut short"))?;
    let crcs = crcs_from_text(table).ok_or_else(|| damaged("its table of checksums is garbled"))?;
    let Some(entry) = &part.file else {
        return match crcs.is_empty() {
            true => Ok(crcs),
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
    Ok(crcs)
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

pub(crate) fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some(&bytes[..=end])
}
