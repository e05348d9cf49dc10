//! Reads data files of every form. What is compressed is decoded whole, and kept for a while.

use crate::model::{DataFile, Form};
use crate::zstd;
use cairn_store::{Error, ObjectReader, Store};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Decoded chunks are kept until they have this many bytes together; a larger one is kept alone.
pub const MAX_KEPT_BYTES: u64 = 512 << 20;

/// A chunk, once it is decoded; whoever comes meanwhile waits.
type Slot = Arc<Mutex<Option<Arc<Vec<u8>>>>>;

/// Opens the data files of a model, and keeps the chunks decoded last.
#[derive(Debug, Clone, Default)]
pub struct Chunks {
    /// The number of a file, the length of its data, and the data.
    kept: Arc<Mutex<VecDeque<(usize, u64, Slot)>>>,
}

impl Chunks {
    /// Opens `file`, which is number `number` of the model that these chunks are for.
    ///
    /// # Errors
    /// If the object is not there.
    pub fn open(
        &self,
        store: &dyn Store,
        file: &DataFile,
        number: usize,
    ) -> Result<Box<dyn ObjectReader>, Error> {
        let source = match &file.form {
            Form::Plain => return store.reader(&file.key),
            Form::Zeros => Source::Zeros,
            Form::Held(bytes) => Source::Held(bytes.clone()),
            Form::HeldZstd(bytes) => Source::HeldZstd(bytes.clone()),
            Form::Zstd(range) => Source::Zstd(store.reader(&file.key)?, range.clone()),
        };
        Ok(Box::new(Reader {
            chunks: self.clone(),
            number,
            key: file.key.clone(),
            len: file.len_bytes,
            source,
        }))
    }

    fn slot(&self, number: usize, len: u64) -> Slot {
        let mut kept = lock(&self.kept);
        if let Some(at) = kept.iter().position(|(known, _, _)| *known == number)
            && let Some(found) = kept.remove(at)
        {
            kept.push_back(found);
        } else {
            kept.push_back((number, len, Slot::default()));
        }
        let mut total: u64 = kept.iter().map(|(_, len, _)| len).sum();
        while total > MAX_KEPT_BYTES && kept.len() > 1 {
            total -= kept.pop_front().map_or(0, |(_, len, _)| len);
        }
        kept.back()
            .map(|(_, _, slot)| slot.clone())
            .unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file whose data is not an object as it is.
struct Reader {
    chunks: Chunks,
    number: usize,
    key: String,
    len: u64,
    source: Source,
}

enum Source {
    Zeros,
    Held(Vec<u8>),
    HeldZstd(Vec<u8>),
    Zstd(Box<dyn ObjectReader>, Range<u64>),
}

impl Reader {
    fn decoded(&self) -> Result<Arc<Vec<u8>>, Error> {
        let slot = self.chunks.slot(self.number, self.len);
        let mut content = lock(&slot);
        if let Some(known) = content.as_ref() {
            return Ok(known.clone());
        }
        let decoded = match &self.source {
            Source::HeldZstd(bytes) => self.decode(bytes)?,
            Source::Zstd(reader, range) => {
                let len = usize::try_from(range.end.saturating_sub(range.start));
                let mut bytes = vec![0; len.unwrap_or(usize::MAX)];
                reader.read_at(range.start, &mut bytes)?;
                self.decode(&bytes)?
            }
            Source::Zeros | Source::Held(_) => Vec::new(),
        };
        let decoded = Arc::new(decoded);
        *content = Some(decoded.clone());
        Ok(decoded)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let decoded = zstd::decode(bytes, self.len).and_then(|decoded| {
            match decoded.len() as u64 == self.len {
                true => Ok(decoded),
                false => Err(format!("{} of {} bytes come out", decoded.len(), self.len)),
            }
        });
        decoded.map_err(|reason| Error::Io {
            key: self.key.clone(),
            operation: "decompress",
            source: io::Error::new(io::ErrorKind::InvalidData, reason),
        })
    }

    fn copy(&self, from: &[u8], offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = from.get(start..).unwrap_or_default();
        let Some(bytes) = rest.get(..buffer.len()) else {
            return Err(self.too_short(offset, buffer.len(), rest.len() as u64));
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn too_short(&self, offset: u64, wanted: usize, got: u64) -> Error {
        Error::Truncated {
            key: self.key.clone(),
            offset,
            wanted: wanted as u64,
            got,
        }
    }
}

impl ObjectReader for Reader {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        match &self.source {
            Source::Held(bytes) => self.copy(bytes, offset, buffer),
            Source::Zeros => {
                let rest = self.len.saturating_sub(offset);
                if rest < buffer.len() as u64 {
                    return Err(self.too_short(offset, buffer.len(), rest));
                }
                buffer.fill(0);
                Ok(())
            }
            Source::HeldZstd(_) | Source::Zstd(..) => {
                self.copy(self.decoded()?.as_slice(), offset, buffer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_store::{Memory, PutMode};

    fn read(file: &DataFile, store: &Memory, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let reader = Chunks::default().open(store, file, 0)?;
        let mut buffer = vec![0xee; len];
        reader.read_at(offset, &mut buffer)?;
        Ok(buffer)
    }

    #[test]
    fn every_form_reads_as_the_same_bytes() {
        let data: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let packed = ::zstd::encode_all(data.as_slice(), 1).unwrap();
        let store = Memory::new();
        store.put("plain", &data, PutMode::Create).unwrap();
        let around = [b"abc".as_slice(), &packed, b"rest"].concat();
        store.put("packed", &around, PutMode::Create).unwrap();
        let range = 3..3 + packed.len() as u64;
        for (key, form) in [
            ("plain", Form::Plain),
            ("packed", Form::Zstd(range)),
            ("x", Form::Held(data.clone())),
            ("x", Form::HeldZstd(packed)),
        ] {
            let key = key.to_string();
            let file = DataFile {
                key,
                len_bytes: 5000,
                form,
            };
            assert_eq!(read(&file, &store, 0, 5000).unwrap(), data, "{file:?}");
            assert_eq!(read(&file, &store, 4990, 10).unwrap(), data[4990..]);
            assert!(read(&file, &store, 4991, 10).is_err());
            assert!(read(&file, &store, u64::MAX, 1).is_err());
        }
        let zeros = DataFile {
            key: "x".into(),
            len_bytes: 9,
            form: Form::Zeros,
        };
        assert_eq!(read(&zeros, &store, 1, 8).unwrap(), [0; 8]);
        assert!(read(&zeros, &store, 2, 8).is_err());
    }

    #[test]
    fn what_decodes_to_another_length_is_refused() {
        let packed = ::zstd::encode_all([7; 100].as_slice(), 1).unwrap();
        for len_bytes in [0, 99, 101, u64::MAX] {
            let form = Form::HeldZstd(packed.clone());
            let file = DataFile {
                key: "x".into(),
                len_bytes,
                form,
            };
            assert!(read(&file, &Memory::new(), 0, 1).is_err(), "{len_bytes}");
        }
    }

    #[test]
    fn few_chunks_are_kept() {
        let chunks = Chunks::default();
        for number in 0..9 {
            chunks.slot(number, MAX_KEPT_BYTES / 4);
        }
        let numbers = || {
            lock(&chunks.kept)
                .iter()
                .map(|(number, _, _)| *number)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(), [5, 6, 7, 8]);
        chunks.slot(5, MAX_KEPT_BYTES / 4);
        chunks.slot(9, 2 * MAX_KEPT_BYTES);
        assert_eq!(numbers(), [9], "one that is larger is kept alone");
    }
}
