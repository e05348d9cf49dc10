//! The central directory of a zip: names of entries, and where their bytes are.

use crate::Error;
use cairn_store::ObjectReader;
use std::collections::HashMap;
use std::ops::Range;

/// The longest central directory that is read.
const MAX_DIRECTORY_BYTES: u64 = 256 << 20;
/// Where the end record can begin, counted from the end: its own length and the longest comment.
const MAX_END_BYTES: u64 = 22 + 0xffff;
/// Read first: the end of most archives, with the whole directory of small ones.
const TAIL_BYTES: u64 = 2048;

const END: &[u8] = b"PK\x05\x06";
const END_64: &[u8] = b"PK\x06\x06";
const LOCATOR_64: &[u8] = b"PK\x06\x07";
const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";

/// A zip inside a range of a file.
pub(crate) struct Archive<'a> {
    pub(crate) file: &'a str,
    pub(crate) reader: &'a dyn ObjectReader,
    range: Range<u64>,
    /// By name, without the folder that all of them lie in.
    entries: HashMap<String, Entry>,
}

/// An entry that is stored as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where its local header begins, counted from the start of the archive.
    header: u64,
    pub(crate) len: u64,
    /// Whether its bytes are neither compressed nor encrypted.
    stored: bool,
}

impl<'a> Archive<'a> {
    /// Reads the directory of the zip in the bytes `range` of a file.
    pub(crate) fn read(
        file: &'a str,
        reader: &'a dyn ObjectReader,
        range: Range<u64>,
    ) -> Result<Self, Error> {
        if range.end > reader.len() || range.start > range.end {
            let reason = format!(
                "bytes {}..{} are needed, it has {}",
                range.start,
                range.end,
                reader.len()
            );
            return Err(Error::damaged(file, reason));
        }
        let mut archive = Self {
            file,
            reader,
            range,
            entries: HashMap::new(),
        };
        let directory = archive.directory()?;
        archive.entries = parse_directory(&directory).ok_or_else(|| archive.broken())?;
        Ok(archive)
    }

    /// The entry called `name` in the folder of the archive.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The bytes of an entry in the file.
    pub(crate) fn data(&self, entry: &Entry) -> Result<Range<u64>, Error> {
        if !entry.stored {
            return Err(Error::Unsupported {
                file: self.file.to_string(),
                reason: "an entry of its zip is compressed or encrypted".into(),
                hint: "torch never does that: write the file again with `torch.save`",
            });
        }
        let header = self.bytes(entry.header, 30)?;
        if !header.starts_with(LOCAL) {
            return Err(self.broken());
        }
        let (name, extra) = (u16_at(&header, 26), u16_at(&header, 28));
        let skip = 30 + u64::from(name.unwrap_or(0)) + u64::from(extra.unwrap_or(0));
        let start = entry.header.checked_add(skip);
        let start = start.and_then(|start| start.checked_add(self.range.start));
        let end = start.and_then(|start| start.checked_add(entry.len));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.range.end => Ok(start..end),
            _ => Err(self.broken()),
        }
    }

    /// Finds the end record and reads the directory it names.
    fn directory(&self) -> Result<Vec<u8>, Error> {
        let len = self.range.end - self.range.start;
        for tail_len in [TAIL_BYTES.min(len), MAX_END_BYTES.min(len)] {
            let start = len - tail_len;
            let tail = self.bytes(start, tail_len)?;
            if let Some(at) = find_end(&tail) {
                return self.directory_of(&tail, start, at);
            }
        }
        Err(Error::damaged(
            self.file,
            "its zip has no end: it was cut short",
        ))
    }

    /// The directory that the end record at `at` in `tail` names; `tail` begins at `start`.
    fn directory_of(&self, tail: &[u8], start: u64, at: usize) -> Result<Vec<u8>, Error> {
        let (len, offset) = match self.end_64(tail, at)? {
            Some(end) => (u64_at(&end, 40), u64_at(&end, 48)),
            None => (
                u32_at(tail, at + 12).map(u64::from),
                u32_at(tail, at + 16).map(u64::from),
            ),
        };
        let (Some(len), Some(offset)) = (len, offset) else {
            return Err(self.broken());
        };
        if len > MAX_DIRECTORY_BYTES {
            return Err(Error::damaged(
                self.file,
                format!("the directory of its zip would have {len} bytes"),
            ));
        }
        let inside = offset
            .checked_sub(start)
            .and_then(|at| usize::try_from(at).ok());
        let inside = inside.and_then(|at| tail.get(at..)?.get(..usize::try_from(len).ok()?));
        match inside {
            Some(directory) => Ok(directory.to_vec()),
            None => self.bytes(offset, len),
        }
    }

    /// The large end record, if there is one.
    fn end_64(&self, tail: &[u8], at: usize) -> Result<Option<Vec<u8>>, Error> {
        let locator = at.checked_sub(20).and_then(|start| tail.get(start..at));
        match locator {
            Some(locator) if locator.starts_with(LOCATOR_64) => {
                let end = self.bytes(u64_at(locator, 8).unwrap_or(u64::MAX), 56)?;
                match end.starts_with(END_64) {
                    true => Ok(Some(end)),
                    false => Err(self.broken()),
                }
            }
            _ => Ok(None),
        }
    }

    /// Bytes of the archive.
    fn bytes(&self, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
        let start = self.range.start.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(len));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(self.broken());
        };
        if end > self.range.end {
            return Err(self.broken());
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.reader.read_at(start, &mut bytes)?;
        Ok(bytes)
    }

    fn broken(&self) -> Error {
        Error::damaged(self.file, "the directory of its zip does not fit its bytes")
    }
}

/// The entries of a central directory, by name without their common folder.
fn parse_directory(mut bytes: &[u8]) -> Option<HashMap<String, Entry>> {
    let mut entries = HashMap::new();
    while bytes.starts_with(ENTRY) {
        let method = u16_at(bytes, 10)?;
        let flags = u16_at(bytes, 8)?;
        let lens = [28, 30, 32].map(|at| u16_at(bytes, at).map(usize::from));
        let [Some(name_len), Some(extra_len), Some(comment_len)] = lens else {
            return None;
        };
        let name = bytes.get(46..46 + name_len)?;
        let extra = bytes.get(46 + name_len..46 + name_len + extra_len)?;
        let [len, stored_len, header] = wide_fields(bytes, extra)?;
        let name = std::str::from_utf8(name).ok()?;
        let short = name.split_once('/').map_or(name, |(_, rest)| rest);
        let entry = Entry {
            header,
            len,
            stored: method == 0 && flags & 1 == 0 && len == stored_len,
        };
        if entries.insert(short.to_string(), entry).is_some() {
            return None;
        }
        bytes = bytes.get(46 + name_len + extra_len + comment_len..)?;
    }
    bytes.is_empty().then_some(entries)
}

/// Length, stored length and header offset; where 32 bits do not suffice, from the extra field in this order.
fn wide_fields(entry: &[u8], extra: &[u8]) -> Option<[u64; 3]> {
    let mut wide = wide_extra(extra);
    let mut fields = [0; 3];
    for (field, at) in fields.iter_mut().zip([24, 20, 42]) {
        *field = match u32_at(entry, at)? {
            u32::MAX => {
                let value = u64_at(wide, 0)?;
                wide = &wide[8..];
                value
            }
            value => u64::from(value),
        };
    }
    Some(fields)
}

/// The contents of the zip64 extra field, empty if there is none.
fn wide_extra(mut extra: &[u8]) -> &[u8] {
    while let (Some(id), Some(len)) = (u16_at(extra, 0), u16_at(extra, 2)) {
        let Some(contents) = extra.get(4..4 + usize::from(len)) else {
            break;
        };
        if id == 1 {
            return contents;
        }
        extra = &extra[4 + usize::from(len)..];
    }
    &[]
}

/// Where the end record begins: the last one whose comment reaches exactly to the end.
fn find_end(tail: &[u8]) -> Option<usize> {
    let reaches_end = |at: usize| {
        let comment = u16_at(tail, at + 20).map(usize::from);
        comment.is_some_and(|len| at + 22 + len == tail.len())
    };
    let starts = (0..tail.len()).rev();
    starts
        .filter(|at| tail[*at..].starts_with(END))
        .find(|at| reaches_end(*at))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}
