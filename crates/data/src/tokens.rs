//! Files of tokens: our own format.
//!
//! ```text
//! 0    b"CAIRNTOK"                              the magic
//! 8    u32  version, 1
//! 12   u32  bytes of a token, 2 or 4
//! 16   u64  documents                           all numbers are little-endian
//! 24   u64  tokens
//! 32   u64  vocabulary: all tokens are below it; 0 if unknown
//! 40   u64  bytes of all fields; 0 if no document has any
//! 48   12 bytes of 0
//! 60   u32  CRC-32C of the 60 bytes before
//! 64   tokens, document after document
//!      0 to 6 bytes of 0, to a multiple of 8
//!      u64 for each document: the number of tokens up to its end
//!      u64 for each document: the number of bytes of fields up to its end      only if there are fields
//!      fields: for each document nothing or a JSON object                      only if there are fields
//! ```

mod spool;
mod writer;

use crate::documents::{check_ends, check_range};
use crate::file::File;
use crate::{Documents, Error, Fields};
use cairn_store::Store;
use std::ops::Range;

pub use writer::TokenWriter;

const MAGIC: &[u8; 8] = b"CAIRNTOK";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const CRC_OFFSET: usize = 60;

/// The most bytes of fields that one document may have.
pub(crate) const MAX_FIELDS_BYTES: u64 = 64 << 20;

/// How many bytes a stored token has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// Two: tokens below 65,536.
    U16,
    /// Four.
    U32,
}

impl Width {
    /// The narrowest one for all tokens of a vocabulary.
    pub fn for_vocabulary(vocabulary: u32) -> Self {
        match vocabulary <= 1 << 16 {
            true => Self::U16,
            false => Self::U32,
        }
    }

    /// The number of bytes.
    pub fn len_bytes(self) -> u64 {
        match self {
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }
}

/// What the first bytes of a file say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    width: Width,
    documents: u64,
    tokens: u64,
    vocabulary: Option<u32>,
    fields_bytes: u64,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put =
            |offset: usize, part: &[u8]| bytes[offset..][..part.len()].copy_from_slice(part);
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &self.width.len_bytes().to_le_bytes()[..4]);
        put(16, &self.documents.to_le_bytes());
        put(24, &self.tokens.to_le_bytes());
        put(32, &self.vocabulary.unwrap_or(0).to_le_bytes());
        put(40, &self.fields_bytes.to_le_bytes());
        let crc = crc32c(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn read(file: &File) -> Result<Self, Error> {
        if file.len_bytes() < HEADER_BYTES as u64 {
            let len = file.len_bytes();
            return Err(file.foreign(format!(
                "it has {len} bytes, and the header alone has {HEADER_BYTES}"
            )));
        }
        let mut bytes = [0; HEADER_BYTES];
        file.read(0, &mut bytes)?;
        if !bytes.starts_with(MAGIC) {
            return Err(file.foreign("it does not begin with `CAIRNTOK`"));
        }
        if crc32c(&bytes[..CRC_OFFSET]) != u32_at(&bytes, CRC_OFFSET) {
            return Err(file.damaged("the checksum of its header is wrong"));
        }
        Self::parse(&bytes).map_err(|reason| file.foreign(reason))
    }

    /// Reads a header that is intact, and perhaps of a later version.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(format!(
                "it has version {version} of the format, and this reads version {VERSION}"
            ));
        }
        let width = match u32_at(bytes, 12) {
            2 => Width::U16,
            4 => Width::U32,
            other => return Err(format!("its tokens have {other} bytes, not 2 or 4")),
        };
        let vocabulary =
            u32::try_from(u64_at(bytes, 32)).map_err(|_| "its vocabulary is too large")?;
        Ok(Self {
            width,
            documents: u64_at(bytes, 16),
            tokens: u64_at(bytes, 24),
            vocabulary: (vocabulary > 0).then_some(vocabulary),
            fields_bytes: u64_at(bytes, 40),
        })
    }

    /// Where the ends of documents begin; `None` if no file is that long.
    fn ends_offset(&self) -> Option<u64> {
        let tokens = self.tokens.checked_mul(self.width.len_bytes())?;
        tokens
            .checked_add(HEADER_BYTES as u64)?
            .checked_next_multiple_of(8)
    }

    /// Where the ends of fields begin, or would.
    fn field_ends_offset(&self) -> Option<u64> {
        self.ends_offset()?
            .checked_add(self.documents.checked_mul(8)?)
    }

    /// Where the fields begin, or would.
    fn fields_offset(&self) -> Option<u64> {
        match self.fields_bytes {
            0 => self.field_ends_offset(),
            _ => self
                .field_ends_offset()?
                .checked_add(self.documents.checked_mul(8)?),
        }
    }

    /// How many bytes the whole file has.
    fn len_bytes(&self) -> Option<u64> {
        self.fields_offset()?.checked_add(self.fields_bytes)
    }
}

/// A file of tokens in our own format, open for reading.
#[derive(Debug)]
pub struct TokenFile {
    file: File,
    header: Header,
}

impl TokenFile {
    /// Opens the file under `key` and checks its header against its length.
    ///
    /// # Errors
    /// If there is no such file, or it is damaged, cut short or of another kind.
    pub fn open(store: &dyn Store, key: &str) -> Result<Self, Error> {
        let file = File::open(store, key)?;
        let header = Header::read(&file)?;
        if header.len_bytes() != Some(file.len_bytes()) {
            let (tokens, documents, len) = (header.tokens, header.documents, file.len_bytes());
            return Err(file.damaged(match header.len_bytes() {
                Some(right) => format!(
                    "with {tokens} tokens in {documents} documents it has {right} bytes, and {len} are there"
                ),
                None => format!("no file holds {tokens} tokens in {documents} documents"),
            }));
        }
        Ok(Self { file, header })
    }

    /// The same file under the name that a user gave it.
    pub(crate) fn named(self, name: &str) -> Self {
        let file = self.file.named(name);
        Self { file, ..self }
    }

    /// How many bytes a stored token has.
    pub fn width(&self) -> Width {
        self.header.width
    }

    /// How many bytes the fields of all documents have.
    pub fn fields_bytes(&self) -> u64 {
        self.header.fields_bytes
    }

    /// The numbers of a table from the one before `documents` on; before the first, that is 0.
    fn table(&self, offset: Option<u64>, documents: &Range<u64>) -> Result<Vec<u64>, Error> {
        check_range("the end of documents", documents, self.header.documents)?;
        let offset = offset.expect("opening has checked all offsets");
        let first = documents.start.saturating_sub(1);
        let count = usize::try_from(documents.end - first);
        let count = count.map_err(|_| self.file.damaged("it has too many documents to read"))?;
        let mut numbers = self.file.read_u64s(offset + first * 8, count)?;
        if documents.start == 0 {
            numbers.insert(0, 0);
        }
        Ok(numbers)
    }
}

impl Documents for TokenFile {
    fn file(&self) -> &str {
        self.file.name()
    }

    fn format(&self) -> &'static str {
        "tokens"
    }

    fn documents(&self) -> u64 {
        self.header.documents
    }

    fn tokens(&self) -> u64 {
        self.header.tokens
    }

    fn vocabulary(&self) -> Option<u32> {
        self.header.vocabulary
    }

    fn ends(&self, documents: Range<u64>) -> Result<Vec<u64>, Error> {
        let mut ends = self.table(self.header.ends_offset(), &documents)?;
        let before = ends.remove(0);
        let refuse = |document, reason| self.file.bad_document(document, reason);
        check_ends(&ends, documents, before, self.header.tokens, refuse)?;
        Ok(ends)
    }

    fn read(&self, tokens: Range<u64>) -> Result<Vec<u32>, Error> {
        check_range("the end of tokens", &tokens, self.header.tokens)?;
        let width = self.header.width.len_bytes();
        let len = (tokens.end - tokens.start) * width;
        let len = usize::try_from(len)
            .map_err(|_| self.file.damaged("it has too many tokens to read"))?;
        let mut bytes = vec![0; len];
        self.file
            .read(HEADER_BYTES as u64 + tokens.start * width, &mut bytes)?;
        Ok(match self.header.width {
            Width::U16 => numbers(&bytes, |bytes| u16::from_le_bytes(bytes).into()),
            Width::U32 => numbers(&bytes, u32::from_le_bytes),
        })
    }

    fn fields(&self, document: u64) -> Result<Option<Fields>, Error> {
        if self.header.fields_bytes == 0 {
            return Ok(None);
        }
        let ends = self.table(
            self.header.field_ends_offset(),
            &(document..document.saturating_add(1)),
        )?;
        let bad = |reason: String| self.file.bad_document(document, reason);
        let (start, end) = (ends[0], ends[1]);
        if start > end || end > self.header.fields_bytes || end - start > MAX_FIELDS_BYTES {
            return Err(bad(format!(
                "its fields are said to be at bytes {start} to {end}"
            )));
        }
        if start == end {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(end - start).expect("at most `MAX_FIELDS_BYTES`")];
        let offset = self
            .header
            .fields_offset()
            .expect("opening has checked all offsets");
        self.file.read(offset + start, &mut bytes)?;
        let fields = serde_json::from_slice(&bytes);
        Ok(Some(fields.map_err(|error| {
            bad(format!("its fields are no JSON object: {error}"))
        })?))
    }
}

/// The numbers in some bytes.
pub(crate) fn numbers<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (parts, _) = bytes.as_chunks::<N>();
    parts.iter().map(|part| number(*part)).collect()
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let part = bytes[offset..].first_chunk().expect("inside the header");
    u32::from_le_bytes(*part)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let part = bytes[offset..].first_chunk().expect("inside the header");
    u64::from_le_bytes(*part)
}

fn crc32c(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a 32-bit CRC fits in 32 bits")
}

#[cfg(test)]
mod tests;
