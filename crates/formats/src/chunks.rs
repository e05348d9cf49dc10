//! Reads data files of every form. What is compressed is decoded whole, and kept for a while.

use crate::model::{DataFile, Form, Model};
use crate::zstd;
use cairn_store::{Error, ObjectReader, Store};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Decoded chunks are kept until they have this many bytes together; a larger one is kept alone.
pub const MAX_KEPT_BYTES: u64 = 512 << 20;

/// A chunk, once it is decoded; whoever comes meanwhile waits.
type Slot = Arc<Mutex<Option<Arc<Vec<u8>>>>>;

/// Chunks that are kept at most, however small.
pub const MAX_KEPT_CHUNKS: usize = 1024;

/// Models of more files than this have them opened for each read: processes may hold only so many open.
const MAX_OPEN_FILES: usize = 256;

/// Opens the data files of a model, and keeps the chunks decoded last.
#[derive(Debug, Clone, Default)]
pub struct Chunks {
    /// The number of a file, the length of its data, and the data.
    kept: Arc<Mutex<VecDeque<(usize, u64, Slot)>>>,
    has_many_files: bool,
}

impl Chunks {
    /// For the files of `model`.
    pub fn new(model: &Model) -> Self {
        Self {
            kept: Arc::default(),
            has_many_files: model.files.len() > MAX_OPEN_FILES,
        }
    }

    /// Opens `file`, which is number `number` of the model that these chunks are for.
    ///
    /// # Errors
    /// If the object is not there.
    pub fn open(
        &self,
        store: &Arc<dyn Store>,
        file: &DataFile,
        number: usize,
    ) -> Result<Box<dyn ObjectReader>, Error> {
        if file.form == Form::Plain && !self.has_many_files {
            return store.reader(&file.key);
        }
        Ok(Box::new(Reader {
            store: store.clone(),
            file: file.clone(),
            chunks: self.clone(),
            number,
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
        while (total > MAX_KEPT_BYTES || kept.len() > MAX_KEPT_CHUNKS) && kept.len() > 1 {
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

impl DataFile {
    /// All of the data, if it has to be decoded.
    fn decoded(&self, store: &dyn Store) -> Result<Vec<u8>, Error> {
        match &self.form {
            Form::Plain | Form::Zeros | Form::Held(_) => Ok(Vec::new()),
            Form::HeldZstd(bytes) => self.decode(bytes),
            Form::Zstd(range) => {
                let len = usize::try_from(range.end.saturating_sub(range.start));
                let mut bytes = vec![0; len.unwrap_or(usize::MAX)];
                store.reader(&self.key)?.read_at(range.start, &mut bytes)?;
                self.decode(&bytes)
            }
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let len = self.len_bytes;
        let decoded =
            zstd::decode(bytes, len).and_then(|decoded| match decoded.len() as u64 == len {
                true => Ok(decoded),
                false => Err(format!("{} of {len} bytes come out", decoded.len())),
            });
        decoded.map_err(|reason| Error::Io {
            key: self.key.clone(),
            operation: "decompress",
            source: io::Error::new(io::ErrorKind::InvalidData, reason),
        })
    }

    /// Reads some of the data, without keeping what had to be decoded.
    ///
    /// # Errors
    /// If it cannot be read, or is not as long as it should be.
    pub(crate) fn read_at(
        &self,
        store: &dyn Store,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        match &self.form {
            Form::Plain => store.reader(&self.key)?.read_at(offset, buffer),
            Form::Zeros => {
                let rest = self.len_bytes.saturating_sub(offset);
                if rest < buffer.len() as u64 {
                    return Err(self.too_short(offset, buffer.len(), rest));
                }
                buffer.fill(0);
                Ok(())
            }
            Form::Held(bytes) => self.copy(bytes, offset, buffer),
            Form::Zstd(_) | Form::HeldZstd(_) => self.copy(&self.decoded(store)?, offset, buffer),
        }
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

/// A file that is opened when it is read.
struct Reader {
    store: Arc<dyn Store>,
    file: DataFile,
    chunks: Chunks,
    number: usize,
}

impl Reader {
    /// The decoded data, from among those that are kept if it is there.
    fn decoded(&self) -> Result<Arc<Vec<u8>>, Error> {
        let slot = self.chunks.slot(self.number, self.file.len_bytes);
        let mut content = lock(&slot);
        if let Some(known) = content.as_ref() {
            return Ok(known.clone());
        }
        let decoded = Arc::new(self.file.decoded(self.store.as_ref())?);
        *content = Some(decoded.clone());
        Ok(decoded)
    }
}

impl ObjectReader for Reader {
    fn len(&self) -> u64 {
        self.file.len_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        match &self.file.form {
            Form::Zstd(_) | Form::HeldZstd(_) => self.file.copy(&self.decoded()?, offset, buffer),
            _ => self.file.read_at(self.store.as_ref(), offset, buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_store::{Memory, PutMode};

    fn read(
        file: &DataFile,
        store: &Arc<dyn Store>,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, Error> {
        let many = Model {
            files: vec![file.clone(); MAX_OPEN_FILES + 1],
            ..Model::default()
        };
        let mut results = [&Model::default(), &many].map(|model| {
            let reader = Chunks::new(model).open(store, file, 0)?;
            let mut buffer = vec![0xee; len];
            reader.read_at(offset, &mut buffer)?;
            Ok::<_, Error>(buffer)
        });
        assert_eq!(results[0].as_ref().ok(), results[1].as_ref().ok());
        std::mem::replace(&mut results[0], Ok(Vec::new()))
    }

    #[test]
    fn every_form_reads_as_the_same_bytes() {
        let data: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let packed = ::zstd::encode_all(data.as_slice(), 1).unwrap();
        let store: Arc<dyn Store> = Arc::new(Memory::new());
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
            assert!(
                read(&file, &(Arc::new(Memory::new()) as Arc<dyn Store>), 0, 1).is_err(),
                "{len_bytes}"
            );
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
