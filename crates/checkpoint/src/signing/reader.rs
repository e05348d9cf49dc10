//! A file whose blocks are compared with what was signed as they are read.

use super::statement::Statement;
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::checksum::{BLOCK_BYTES, sha256_hex};
use crate::error::StoreContext;
use cairn_store::{AlignedBuffer, ObjectReader};
use sha2::{Digest, Sha256};
use std::io;

const DIGEST_BYTES: usize = 32;

/// The file of `writer` behind `reader`, which gives out nothing but what `statement` says.
///
/// # Errors
/// [`Error::Untrusted`] if the list of its blocks is not the one that was signed.
pub(crate) fn authentic(
    checkpoint: &Checkpoint,
    statement: &Statement,
    writer: usize,
    reader: Box<dyn ObjectReader>,
) -> Result<Box<dyn ObjectReader>, Error> {
    let (step, key) = (checkpoint.step(), checkpoint.keys().hashes(writer));
    let store = checkpoint.store();
    let hashes = match store.get(&key) {
        Err(cairn_store::Error::NotFound { .. }) => Vec::new(),
        result => result.doing(|| format!("read `{key}`"))?,
    };
    let blocks = reader.len().div_ceil(BLOCK_BYTES as u64);
    let fits = hashes.len() as u64 == blocks * DIGEST_BYTES as u64;
    if !fits || statement.hashes(writer) != Some(sha256_hex(&hashes).as_str()) {
        let reason = format!("`{key}` is missing, or not what was signed");
        return Err(Error::Untrusted { step, reason });
    }
    Ok(Box::new(Authentic {
        reader,
        hashes,
        step,
        key: checkpoint.keys().data(writer),
    }))
}

struct Authentic {
    reader: Box<dyn ObjectReader>,
    hashes: Vec<u8>,
    step: u64,
    key: String,
}

impl Authentic {
    /// Compares `bytes`, which begin at block `first`.
    fn compare(&self, first: u64, bytes: &[u8]) -> Result<(), cairn_store::Error> {
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let expected = self.hashes.chunks(DIGEST_BYTES).skip(first);
        for (index, (block, expected)) in bytes.chunks(BLOCK_BYTES).zip(expected).enumerate() {
            if Sha256::digest(block)[..] != *expected {
                let begin = (first + index) * BLOCK_BYTES;
                let end = begin + block.len();
                return Err(self.refused(format!(
                    "bytes {begin}..{end} of `{}` are not what was signed",
                    self.key
                )));
            }
        }
        Ok(())
    }

    fn refused(&self, reason: String) -> cairn_store::Error {
        let step = self.step;
        cairn_store::Error::Io {
            key: self.key.clone(),
            operation: "compare",
            // Whoever gives the failure a context finds the error itself in here.
            source: io::Error::other(Error::Untrusted { step, reason }),
        }
    }
}

impl ObjectReader for Authentic {
    fn len(&self) -> u64 {
        self.reader.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), cairn_store::Error> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let len = self.reader.len();
        let end = offset.saturating_add(buffer.len() as u64);
        let whole = offset.is_multiple_of(BLOCK) && (end.is_multiple_of(BLOCK) || end == len);
        if whole || end > len {
            // Beyond the end, the store says what is wrong.
            self.reader.read_at(offset, buffer)?;
            return self.compare(offset / BLOCK, buffer);
        }
        let begin = offset / BLOCK * BLOCK;
        let until = end.next_multiple_of(BLOCK).min(len);
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut blocks = AlignedBuffer::new(size(until - begin));
        self.reader.read_at(begin, &mut blocks)?;
        self.compare(begin / BLOCK, &blocks)?;
        buffer.copy_from_slice(&blocks[size(offset - begin)..size(end - begin)]);
        Ok(())
    }

    fn gap_bytes(&self) -> u64 {
        self.reader.gap_bytes()
    }
}
