//! The making of a signature: every byte is read, compared and hashed.

use super::keys::{PublicKey, SecretKey};
use super::statement::{Statement, Written};
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::checksum::{BLOCK_BYTES, sha256_hex};
use crate::error::StoreContext;
use crate::pool::CHUNK_BYTES;
use crate::source::Source;
use crate::verify::{check_stretch, stretch_buffer};
use cairn_store::PutMode;
use sha2::{Digest, Sha256};

/// What was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The key that confirms it.
    pub key: PublicKey,
    /// The data files.
    pub files: usize,
    /// Their bytes, all of which were read.
    pub len_bytes: u64,
}

/// Signs a checkpoint. All of it is read, and compared with its checksums: damage is not signed.
///
/// # Crash safety
/// The signature comes last; without it, what else was written is ignored.
///
/// # Errors
/// If something is damaged, or cannot be read or written.
pub fn sign(
    checkpoint: &Checkpoint,
    key: &SecretKey,
    progress: &dyn Fn(u64),
) -> Result<Signed, Error> {
    let mut signed = Signed {
        key: key.public(),
        files: 0,
        len_bytes: 0,
    };
    checkpoint.assets()?;
    let mut writers = Vec::new();
    for writer in 0..checkpoint.manifest().writers() {
        let part = checkpoint.part(writer)?;
        let (part, _) = part.as_ref();
        let hashes = match &part.part.file {
            None => None,
            Some(file) => {
                signed.files += 1;
                signed.len_bytes += file.len_bytes;
                Some(put_hashes(checkpoint, writer, progress)?)
            }
        };
        writers.push(Written {
            part: part.digest.clone(),
            hashes,
        });
    }
    let statement = Statement::new(checkpoint, writers);
    statement.put(checkpoint.store().as_ref(), key)?;
    Ok(signed)
}

/// Puts the list of the hashes of a writer's blocks beside its file. Returns the digest of the list.
fn put_hashes(
    checkpoint: &Checkpoint,
    writer: usize,
    progress: &dyn Fn(u64),
) -> Result<String, Error> {
    let file = checkpoint.open_file(writer)?;
    let mut buffer = stretch_buffer(file.reader.len(), CHUNK_BYTES);
    let mut hashes = Vec::new();
    for offset in (0..file.reader.len()).step_by(CHUNK_BYTES) {
        let (len, damage) = check_stretch(checkpoint, writer, &file, offset, &mut buffer)?;
        if let Some(damage) = damage.into_iter().next() {
            return Err(damage);
        }
        let bytes = &buffer[..usize::try_from(len).unwrap_or(usize::MAX)];
        let digests = bytes.chunks(BLOCK_BYTES).flat_map(Sha256::digest);
        hashes.extend(digests);
        progress(len);
    }
    let key = checkpoint.keys().hashes(writer);
    let put = checkpoint.store().put(&key, &hashes, PutMode::Replace);
    put.doing(|| format!("write `{key}`"))?;
    Ok(sha256_hex(&hashes))
}
