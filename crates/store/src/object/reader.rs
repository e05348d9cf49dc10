//! Reading ranges of an object.

use super::bucket::Bucket;
use crate::{Error, MAX_GET_BYTES, ObjectReader};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error as Fault, GetOptions, GetRange, GetResult, ObjectMeta};
use std::sync::Arc;

/// Large reads are made of requests of this size, at the same time: 4 MiB. One connection is far slower than a network.
const REQUEST_BYTES: usize = 4 << 20;
/// How many of them one read has in flight.
const REQUESTS_AT_ONCE: usize = 8;
/// What a connection moves while a request waits for its first byte, roughly: 512 KiB. Nearer ranges are read as one.
const GAP_BYTES: u64 = 512 << 10;

/// An object, as it was when it was found.
pub(super) struct Reader {
    bucket: Arc<Bucket>,
    key: String,
    meta: ObjectMeta,
}

impl Reader {
    pub(super) fn new(bucket: Arc<Bucket>, key: &str, meta: ObjectMeta) -> Self {
        Self {
            bucket,
            key: key.to_owned(),
            meta,
        }
    }

    /// Fills `buffer` with the bytes at `offset`, by one request.
    async fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let range = offset..offset + buffer.len() as u64;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        let found = self
            .bucket
            .client
            .get_opts(&self.meta.location, options)
            .await;
        let found = found.map_err(|fault| self.bucket.meaning(&self.key, "read", &fault))?;
        // Every answer names the version that it is from; conditions on requests are not understood by all services.
        if found.meta.e_tag != self.meta.e_tag || found.meta.size != self.meta.size {
            return Err(Error::Changed {
                key: self.key.clone(),
            });
        }
        let got = copy(found, buffer).await;
        let got = got.map_err(|fault| self.bucket.meaning(&self.key, "read", &fault))?;
        match got == buffer.len() {
            true => Ok(()),
            false => Err(self.truncated(offset, buffer.len(), got as u64)),
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
}

impl ObjectReader for Reader {
    fn len(&self) -> u64 {
        self.meta.size
    }

    fn gap_bytes(&self) -> u64 {
        GAP_BYTES
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let end = offset.saturating_add(buffer.len() as u64);
        if end > self.meta.size || offset > self.meta.size {
            let got = self.meta.size.saturating_sub(offset);
            return Err(self.truncated(offset, buffer.len(), got));
        }
        if buffer.is_empty() {
            return Ok(());
        }
        let offsets = (offset..end).step_by(REQUEST_BYTES);
        let requests = offsets.zip(buffer.chunks_mut(REQUEST_BYTES));
        let requests = stream::iter(requests).map(|(offset, part)| self.fill(offset, part));
        let requests = requests.buffer_unordered(REQUESTS_AT_ONCE);
        self.bucket.wait(requests.try_collect::<()>())
    }
}

/// Copies what comes into `buffer`; returns how much came, at most one byte too many counted.
async fn copy(found: GetResult, buffer: &mut [u8]) -> Result<usize, Fault> {
    let mut stream = found.into_stream();
    let mut at = 0;
    while let Some(bytes) = stream.next().await {
        let bytes = bytes?;
        let Some(target) = buffer.get_mut(at..at + bytes.len()) else {
            return Ok(buffer.len() + 1);
        };
        target.copy_from_slice(&bytes);
        at += bytes.len();
    }
    Ok(at)
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
