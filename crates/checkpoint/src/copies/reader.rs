//! Reads a data file from the fast tier, and what is missing or damaged there from the durable one.

use super::Checksums;
use crate::Error;
use crate::checkpoint::StoredFile;
use crate::checksum::BLOCK_BYTES;
use crate::packed;
use crate::sync::{Mutex, PoisonError};
use cairn_store::{AlignedBuffer, Error as StoreError, ObjectReader, Tiered};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A data file whose blocks come from the nearest tier that has them as they were written.
///
/// A block that is good nowhere is handed out as it is: who loads checks it again and says what it held.
pub(crate) struct NearestGood {
    pub(super) tiers: Tiered,
    pub(super) key: String,
    crcs: Checksums,
    len: u64,
    near: Option<Box<dyn ObjectReader>>,
    /// Opened when it is needed.
    far: Mutex<Option<Arc<dyn ObjectReader>>>,
    /// Whether the fast tier has the file, but not all of it is good.
    damaged: Arc<AtomicBool>,
}

impl NearestGood {
    /// Opens a file whose blocks have these checksums; `damaged` is set if the fast tier's copy turns out to be.
    pub(crate) fn open(
        tiers: &Tiered,
        stored: &StoredFile,
        crcs: Checksums,
        damaged: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let key = &stored.key;
        let near = packed::open(tiers.fast().as_ref(), key);
        let mut file = Self {
            tiers: tiers.clone(),
            key: key.clone(),
            crcs,
            len: 0,
            near: None,
            far: Mutex::default(),
            damaged,
        };
        let fault = match near {
            Ok(near) if stored.fits(near.len()) => {
                file.len = near.len();
                file.near = Some(near);
                return Ok(file);
            }
            Ok(near) => stored.misfit(Some(near.len())),
            Err(error) => error,
        };
        let is_absent = super::is_absent(&fault);
        if !is_absent {
            file.note(&fault.to_string());
        }
        match packed::open(tiers.durable().as_ref(), key) {
            Ok(far) if stored.fits(far.len()) => {
                file.len = far.len();
                file.far = Mutex::new(Some(far.into()));
                Ok(file)
            }
            Ok(far) if is_absent => Err(stored.misfit(Some(far.len()))),
            Err(far) if is_absent && super::is_absent(&far) => Err(stored.misfit(None)),
            Err(far) if is_absent => Err(far),
            _ => Err(fault),
        }
    }

    /// The durable tier's copy.
    fn far(&self) -> Result<Arc<dyn ObjectReader>, StoreError> {
        let mut far = self.far.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = far.as_ref() {
            return Ok(open.clone());
        }
        let open = match packed::open(self.tiers.durable().as_ref(), &self.key) {
            Ok(open) if open.len() == self.len => Arc::from(open),
            Ok(open) => return Err(self.too_short(0, self.len, open.len())),
            Err(Error::Store { source, .. }) => return Err(source),
            Err(_) => return Err(self.too_short(0, self.len, 0)),
        };
        *far = Some(Arc::clone(&open));
        Ok(open)
    }

    pub(super) fn checksums(&self) -> &Checksums {
        &self.crcs
    }

    /// Reads whole blocks.
    fn read_blocks(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let Some(near) = &self.near else {
            return self.far()?.read_at(offset, buffer);
        };
        if let Err(error) = near.read_at(offset, buffer) {
            self.note(&error.to_string());
            let read = self.far().and_then(|far| far.read_at(offset, buffer));
            return read.map_err(|_| error);
        }
        for bad in self.bad_blocks(offset, buffer) {
            let at = offset + bad.start as u64;
            self.note(&format!("bytes {at}.. are not those that were written"));
            let mut copy = vec![0; bad.len()];
            let read = self.far().and_then(|far| far.read_at(at, &mut copy));
            if read.is_ok() {
                buffer[bad].copy_from_slice(&copy);
            }
        }
        Ok(())
    }

    /// Stretches of blocks in `buffer`, which begins at `offset`, that do not have their checksums.
    fn bad_blocks(&self, offset: u64, buffer: &[u8]) -> Vec<Range<usize>> {
        let first = usize::try_from(offset / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
        let mut bad: Vec<Range<usize>> = Vec::new();
        for (index, block) in buffer.chunks(BLOCK_BYTES).enumerate() {
            if self.crcs.fit(first.saturating_add(index), block) {
                continue;
            }
            let begin = index * BLOCK_BYTES;
            match bad.last_mut() {
                Some(last) if last.end == begin => last.end += block.len(),
                _ => bad.push(begin..begin + block.len()),
            }
        }
        bad
    }

    /// Remembers that the fast tier's copy is damaged.
    fn note(&self, reason: &str) {
        if !self.damaged.swap(true, Ordering::Relaxed) {
            let key = &self.key;
            tracing::warn!(
                key,
                reason,
                "damaged on the fast tier: read from the durable one"
            );
        }
    }

    fn too_short(&self, offset: u64, wanted: u64, got: u64) -> StoreError {
        StoreError::Truncated {
            key: self.key.clone(),
            offset,
            wanted,
            got,
        }
    }
}

impl ObjectReader for NearestGood {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let wanted = buffer.len() as u64;
        let end = offset.checked_add(wanted).filter(|end| *end <= self.len);
        let Some(end) = end else {
            let got = self.len.saturating_sub(offset);
            return Err(self.too_short(offset, wanted, got));
        };
        let block = BLOCK_BYTES as u64;
        let whole = offset / block * block..end.next_multiple_of(block).min(self.len);
        if whole == (offset..end) {
            return self.read_blocks(offset, buffer);
        }
        // Only whole blocks have checksums.
        let len = usize::try_from(whole.end - whole.start).unwrap_or(usize::MAX);
        let mut blocks = AlignedBuffer::new(len);
        self.read_blocks(whole.start, &mut blocks)?;
        let skip = usize::try_from(offset - whole.start).unwrap_or(usize::MAX);
        buffer.copy_from_slice(&blocks[skip..skip + buffer.len()]);
        Ok(())
    }

    /// That of the tier which has the file.
    fn gap_bytes(&self) -> u64 {
        match &self.near {
            Some(near) => near.gap_bytes(),
            None => self.far().map_or(0, |far| far.gap_bytes()),
        }
    }
}
