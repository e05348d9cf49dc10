//! The datasets of Megatron: tokens in a `.bin` file, their places in an `.idx` file.
//!
//! ```text
//! 0    b"MMIDIDX\0\0"
//! 9    u64  version, 1
//! 17   u8   type of the tokens
//! 18   u64  sequences
//! 26   u64  entries of the list of documents: their number and one
//! 34   i32 for each sequence: its tokens
//!      i64 for each sequence: its first byte in the `.bin` file
//!      i64 for each document: its first sequence, and the number of sequences
//!      i8 for each sequence: its mode, if there are images, too
//! ```

use crate::documents::{check_ends, check_range};
use crate::file::File;
use crate::tokens::numbers;
use crate::{Documents, Error, Fields, document_at};
use cairn_store::Store;
use std::ops::Range;

const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
const VERSION: u64 = 1;
const HEADER_BYTES: usize = 34;

/// The types of tokens that Megatron writes; it has two of floats besides, which are no tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    I16,
    I32,
    I64,
    U16,
}

impl Kind {
    fn from_code(code: u8) -> Result<Self, String> {
        Ok(match code {
            1 => Self::U8,
            2 => Self::I8,
            3 => Self::I16,
            4 => Self::I32,
            5 => Self::I64,
            6 | 7 => return Err("it holds floats".into()),
            8 => Self::U16,
            _ => return Err(format!("its type of tokens is {code}, which is not known")),
        })
    }

    fn len_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    fn decode(self, bytes: &[u8]) -> Vec<i64> {
        match self {
            Self::U8 => numbers(bytes, |bytes| u8::from_le_bytes(bytes).into()),
            Self::I8 => numbers(bytes, |bytes| i8::from_le_bytes(bytes).into()),
            Self::I16 => numbers(bytes, |bytes| i16::from_le_bytes(bytes).into()),
            Self::I32 => numbers(bytes, |bytes| i32::from_le_bytes(bytes).into()),
            Self::I64 => numbers(bytes, i64::from_le_bytes),
            Self::U16 => numbers(bytes, |bytes| u16::from_le_bytes(bytes).into()),
        }
    }
}

/// A dataset of Megatron, open for reading.
///
/// Its sequences lie one after another in the `.bin` file, as Megatron writes them.
#[derive(Debug)]
pub struct Megatron {
    index: File,
    tokens: File,
    kind: Kind,
    sequences: u64,
    documents: u64,
}

impl Megatron {
    /// Opens `<prefix>.idx` and `<prefix>.bin` and checks that they fit together.
    ///
    /// # Errors
    /// If one of the files is missing, damaged, cut short or of another kind.
    pub fn open(store: &dyn Store, prefix: &str) -> Result<Self, Error> {
        let index = File::open(store, &format!("{prefix}.idx"))?;
        let tokens = File::open(store, &format!("{prefix}.bin"))?;
        let mut header = [0; HEADER_BYTES];
        if index.len_bytes() < HEADER_BYTES as u64 {
            return Err(index.foreign("it is shorter than the header of an index of Megatron"));
        }
        index.read(0, &mut header)?;
        if !header.starts_with(MAGIC) {
            return Err(index.foreign("it does not begin with `MMIDIDX`"));
        }
        let number = |offset: usize| {
            u64::from_le_bytes(*header[offset..].first_chunk().expect("inside the header"))
        };
        if number(9) != VERSION {
            let version = number(9);
            return Err(index.foreign(format!(
                "it has version {version} of Megatron's index, and this reads version {VERSION}"
            )));
        }
        let kind = Kind::from_code(header[17]).map_err(|reason| index.foreign(reason))?;
        let (sequences, entries) = (number(18), number(26));
        let opened = Self {
            index,
            tokens,
            kind,
            sequences,
            documents: entries.saturating_sub(1),
        };
        opened.check(entries)?;
        Ok(opened)
    }

    /// The same files under the names that begin as a user gave them.
    pub(crate) fn named(self, prefix: &str) -> Self {
        Self {
            index: self.index.named(&format!("{prefix}.idx")),
            tokens: self.tokens.named(&format!("{prefix}.bin")),
            ..self
        }
    }

    /// Compares the two files with what the header says.
    fn check(&self, entries: u64) -> Result<(), Error> {
        let right = (|| {
            let sequences = self.sequences.checked_mul(12)?;
            entries
                .checked_mul(8)?
                .checked_add(sequences)?
                .checked_add(HEADER_BYTES as u64)
        })();
        let len = self.index.len_bytes();
        let modes = |right: u64| right.checked_add(self.sequences) == Some(len);
        if !right.is_some_and(|right| right == len || modes(right)) {
            let (sequences, documents) = (self.sequences, self.documents);
            return Err(self.index.damaged(format!(
                "it is said to have {sequences} sequences in {documents} documents, which its {len} bytes do not"
            )));
        }
        let (first, last) = match entries {
            0 => (0, 0),
            _ => (
                self.first_sequences(0..1)?[0],
                self.first_sequences(self.documents..entries)?[0],
            ),
        };
        if first != 0 || last != self.sequences {
            let sequences = self.sequences;
            return Err(self.index.damaged(format!(
                "its documents are the sequences {first} to {last}, and there are {sequences}"
            )));
        }
        let len = self.tokens.len_bytes();
        if !len.is_multiple_of(self.kind.len_bytes()) || self.last_end()? != len {
            let right = self.last_end()?;
            return Err(self
                .tokens
                .damaged(format!("it has {len} bytes, and the index says {right}")));
        }
        Ok(())
    }

    /// Where the last sequence ends, in bytes.
    fn last_end(&self) -> Result<u64, Error> {
        let Some(last) = self.sequences.checked_sub(1) else {
            return Ok(0);
        };
        let mut size = [0; 4];
        self.index.read(HEADER_BYTES as u64 + last * 4, &mut size)?;
        let size = u64::from(u32::from_le_bytes(size)) * self.kind.len_bytes();
        Ok(self.pointers(last..self.sequences)?[0].saturating_add(size))
    }

    /// The first byte of each of these sequences.
    fn pointers(&self, sequences: Range<u64>) -> Result<Vec<u64>, Error> {
        let offset = HEADER_BYTES as u64 + self.sequences * 4 + sequences.start * 8;
        self.list(offset, sequences.end - sequences.start)
    }

    /// The first sequence of each of these documents.
    fn first_sequences(&self, documents: Range<u64>) -> Result<Vec<u64>, Error> {
        let offset = HEADER_BYTES as u64 + self.sequences * 12 + documents.start * 8;
        self.list(offset, documents.end - documents.start)
    }

    fn list(&self, offset: u64, count: u64) -> Result<Vec<u64>, Error> {
        let count = usize::try_from(count)
            .map_err(|_| self.index.damaged("it has too many sequences to read"))?;
        self.index.read_u64s(offset, count)
    }
}

impl Documents for Megatron {
    fn file(&self) -> &str {
        self.tokens.name()
    }

    fn format(&self) -> &'static str {
        "megatron"
    }

    fn documents(&self) -> u64 {
        self.documents
    }

    fn tokens(&self) -> u64 {
        self.tokens.len_bytes() / self.kind.len_bytes()
    }

    fn ends(&self, documents: Range<u64>) -> Result<Vec<u64>, Error> {
        check_range("the end of documents", &documents, self.documents)?;
        let bad = |document, reason| self.index.bad_document(document, reason);
        let bounds = self.first_sequences(documents.start..documents.end + 1)?;
        check_ends(
            &bounds,
            documents.start..documents.end + 1,
            0,
            self.sequences,
            bad,
        )?;
        let (Some(&first), Some(&last)) = (bounds.first(), bounds.last()) else {
            return Ok(Vec::new());
        };
        // A document ends where the next begins, and the last one with the file.
        let mut pointers = self.pointers(first..last.saturating_add(1).min(self.sequences))?;
        if last == self.sequences {
            pointers.push(self.tokens.len_bytes());
        }
        let width = self.kind.len_bytes();
        let mut ends = Vec::with_capacity(bounds.len());
        for (document, sequence) in (documents.start..).zip(&bounds) {
            let pointer =
                pointers[usize::try_from(sequence - first).expect("an index of the list")];
            if !pointer.is_multiple_of(width) {
                return Err(bad(
                    document,
                    format!("it begins at byte {pointer}, inside a token"),
                ));
            }
            ends.push(pointer / width);
        }
        let start = ends.remove(0);
        check_ends(&ends, documents, start, self.tokens(), bad)?;
        Ok(ends)
    }

    fn read(&self, tokens: Range<u64>) -> Result<Vec<u32>, Error> {
        check_range("the end of tokens", &tokens, self.tokens())?;
        let width = self.kind.len_bytes();
        let len = usize::try_from((tokens.end - tokens.start) * width);
        let mut bytes =
            vec![0; len.map_err(|_| self.tokens.damaged("it has too many tokens to read"))?];
        self.tokens.read(tokens.start * width, &mut bytes)?;
        let read = self.kind.decode(&bytes);
        let narrow = |(place, token): (u64, i64)| {
            u32::try_from(token).or_else(|_| {
                let document = document_at(self, place)?;
                let reason = format!("token {place} of the file is {token}");
                Err(self.tokens.bad_document(document, reason))
            })
        };
        (tokens.start..).zip(read).map(narrow).collect()
    }

    fn fields(&self, _: u64) -> Result<Option<Fields>, Error> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
