//! Reads a data file from end to end in bounded memory, with every block checked.

use super::Checksums;
use crate::Error;
use crate::checksum::BLOCK_BYTES;
use crate::error::StoreContext;
use crate::pace::Pace;
use crate::packed::{self, is_packed};
use crate::pool::CHUNK_BYTES;
use crate::sync::thread;
use crate::workers::Workers;
use crate::writer::{chunk_count, chunk_len};
use cairn_store::{AlignedBuffer, ObjectReader, ObjectWriter, Store};

/// Threads that read one file, with a chunk of memory each.
const THREADS: usize = 4;

/// A data file to be read from end to end, with the checksums of its blocks.
pub(crate) struct Copying<'a> {
    pub(crate) key: &'a str,
    pub(crate) from: &'a dyn ObjectReader,
    pub(crate) crcs: &'a Checksums,
    pub(crate) pace: Option<&'a Pace>,
}

impl Copying<'_> {
    /// Compares every block with its checksum.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.each(|_, _| Ok(()))
    }

    /// Writes the file to `to` under the key `aside`, which is its own or one that it is renamed from. A block that is not as it should be
    /// stops it.
    ///
    /// The object of a packed file is copied as it is from `holder`, after all that it holds was checked.
    pub(crate) fn write(
        &self,
        holder: &dyn Store,
        to: &dyn Store,
        aside: &str,
    ) -> Result<(), Error> {
        if !is_packed(self.key) {
            return self.write_bytes(to, aside);
        }
        let held = packed::open(holder, self.key)?;
        let held = Copying {
            from: held.as_ref(),
            ..*self
        };
        held.check()?;
        let object = holder.reader(self.key);
        let object = object.doing(|| format!("open `{}`", self.key))?;
        let bytes = Copying {
            from: object.as_ref(),
            crcs: &Checksums::unknown(),
            ..*self
        };
        bytes.write_bytes(to, aside)
    }

    fn write_bytes(&self, to: &dyn Store, key: &str) -> Result<(), Error> {
        let writer = to.create(key, self.from.len());
        let writer = writer.doing(|| format!("create `{key}`"))?;
        self.put_all(writer.as_ref())?;
        writer.finish().doing(|| format!("make `{key}` durable"))
    }

    fn put_all(&self, to: &dyn ObjectWriter) -> Result<(), Error> {
        self.each(|offset, bytes| {
            if let Some(pace) = self.pace {
                pace.wait_for(bytes.len() as u64);
            }
            let written = to.write_at(offset, bytes);
            written.doing(|| format!("write bytes {offset}.. of `{}`", self.key))
        })
    }

    fn each(&self, take: impl Fn(u64, &[u8]) -> Result<(), Error> + Sync) -> Result<(), Error> {
        let count = chunk_count(self.from.len());
        let workers = Workers::new(count);
        thread::scope(|scope| {
            for _ in 0..THREADS.min(count) {
                scope.spawn(|| {
                    cairn_device::yield_to_others();
                    let longest = chunk_len(0, self.from.len()).unwrap_or(0);
                    let mut buffer = AlignedBuffer::new(longest);
                    workers.each(|index| {
                        let (offset, bytes) = self.chunk(index, &mut buffer)?;
                        take(offset, bytes)
                    });
                });
            }
        });
        workers.finish()
    }

    /// Chunk number `index`, checked.
    fn chunk<'b>(&self, index: usize, buffer: &'b mut [u8]) -> Result<(u64, &'b [u8]), Error> {
        let offset = index as u64 * CHUNK_BYTES as u64;
        let len = chunk_len(index, self.from.len()).unwrap_or(0);
        let bytes = &mut buffer[..len];
        let read = self.from.read_at(offset, bytes);
        read.doing(|| format!("read bytes {offset}.. of `{}`", self.key))?;
        let first = index * (CHUNK_BYTES / BLOCK_BYTES);
        for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            if !self.crcs.fit(first + number, block) {
                let begin = (first + number) * BLOCK_BYTES;
                let end = begin + block.len();
                let reason = format!("bytes {begin}..{end} are not those that were written");
                return Err(Error::damaged(self.key, reason));
            }
        }
        Ok((offset, bytes))
    }
}
