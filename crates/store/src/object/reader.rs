//! Reading ranges of an object.

use super::bucket::Bucket;
use super::home::Home;
use crate::{Error, MAX_GET_BYTES, ObjectReader};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error as Fault, GetOptions, GetRange, ObjectMeta};
use std::sync::Arc;

/// Large reads are made of requests of this size, at the same time: 4 MiB. One connection is far slower than a network.
const REQUEST_BYTES: usize = 4 << 20;
/// How many of them one read has in flight.
const REQUESTS_AT_ONCE: usize = 8;
/// What a connection moves while a request waits for its first byte, roughly: 512 KiB. Nearer ranges are read as one.
const GAP_BYTES: u64 = 512 << 10;

/// An object open for reading.
pub(super) struct Reader(Arc<Found>);

/// An object, as it was when it was found.
struct Found {
    home: Arc<Home>,
    key: String,
    meta: ObjectMeta,
}

impl Reader {
    pub(super) fn new(home: Arc<Home>, key: &str, meta: ObjectMeta) -> Self {
        let key = key.to_owned();
        Self(Arc::new(Found { home, key, meta }))
    }

    /// Fills `buffer` with the bytes at `offset`, by one request.
    ///
    /// Answers come in many small pieces. The threads of the runtime put up with that; this one is woken once.
    async fn fill(
        &self,
        bucket: &Arc<Bucket>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let (found, len) = (self.0.clone(), buffer.len());
        let asked = bucket.clone();
        let request = async move { found.get(&asked, offset, len).await };
        match bucket.runtime().spawn(request).await {
            Ok(bytes) => buffer.copy_from_slice(&bytes?),
            Err(ended) => return Err(self.0.unanswered(&ended)),
        }
        Ok(())
    }
}

impl Found {
    /// The `len` bytes at `offset`.
    async fn get(&self, bucket: &Bucket, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(offset..offset + len as u64)),
            ..GetOptions::default()
        };
        let failed = |fault: &Fault| bucket.meaning(&self.key, "read", fault);
        let found = bucket.client.get_opts(&self.meta.location, options).await;
        let found = found.map_err(|fault| failed(&fault))?;
        // Every answer names the version that it is from; conditions on requests are not understood by all services.
        if found.meta.e_tag != self.meta.e_tag || found.meta.size != self.meta.size {
            return Err(Error::Changed {
                key: self.key.clone(),
            });
        }
        let (mut stream, mut bytes) = (found.into_stream(), Vec::with_capacity(len));
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|fault| failed(&fault))?;
            if bytes.len() + piece.len() > len {
                return Err(self.truncated(offset, len, len as u64 + 1));
            }
            bytes.extend_from_slice(&piece);
        }
        match bytes.len() == len {
            true => Ok(bytes),
            false => Err(self.truncated(offset, len, bytes.len() as u64)),
        }
    }

    fn truncated(&self, offset: u64, wanted: usize, got: u64) -> Error {
        Error::Truncated {
            key: self.key.clone(),
            offset,
            wanted: wanted as u64,
            got,
        }
    }

    /// The error of a request that ended without an answer.
    fn unanswered(&self, ended: &tokio::task::JoinError) -> Error {
        Error::Service {
            key: self.key.clone(),
            operation: "read",
            reason: ended.to_string(),
        }
    }
}

impl ObjectReader for Reader {
    fn len(&self) -> u64 {
        self.0.meta.size
    }

    fn gap_bytes(&self) -> u64 {
        GAP_BYTES
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let (end, size) = (offset.saturating_add(buffer.len() as u64), self.len());
        if end > size || offset > size {
            let got = size.saturating_sub(offset);
            return Err(self.0.truncated(offset, buffer.len(), got));
        }
        if buffer.is_empty() {
            return Ok(());
        }
        let offsets = (offset..end).step_by(REQUEST_BYTES);
        let requests = offsets.zip(buffer.chunks_mut(REQUEST_BYTES));
        let bucket = self.0.home.bucket()?;
        let requests = stream::iter(requests);
        let requests = requests.map(|(offset, part)| self.fill(&bucket, offset, part));
        let requests = requests.buffer_unordered(REQUESTS_AT_ONCE);
        bucket.wait(requests.try_collect::<()>())
    }
}

/// The first `len` bytes of an object, or all of it if it is shorter, by one request.
pub(super) async fn first_bytes(
    bucket: &Bucket,
    key: &str,
    path: &Path,
    len: u64,
) -> Result<Vec<u8>, Error> {
    let bounded = (0 < len && len <= MAX_GET_BYTES).then_some(GetRange::Bounded(0..len));
    let options = GetOptions {
        range: bounded,
        ..GetOptions::default()
    };
    let found = match bucket.client.get_opts(path, options).await {
        Ok(found) => found,
        Err(fault @ Fault::NotFound { .. }) => return Err(bucket.meaning(key, "read", &fault)),
        // Services refuse any range of an empty object.
        Err(fault) => match bucket.find(key, path).await {
            Ok(Some(meta)) if meta.size == 0 => return Ok(Vec::new()),
            _ => return Err(bucket.meaning(key, "read", &fault)),
        },
    };
    let len = found.meta.size.min(len);
    if len > MAX_GET_BYTES {
        return Err(Error::TooLarge {
            key: key.to_owned(),
            len,
            limit: MAX_GET_BYTES,
        });
    }
    let bytes = found.bytes().await;
    let bytes = bytes.map_err(|fault| bucket.meaning(key, "read", &fault))?;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Ok(bytes[..bytes.len().min(len)].to_vec())
}
