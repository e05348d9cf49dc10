//! Writing an object in parts.

use super::bucket::Bucket;
use super::create::create;
use super::room::{Place, Room};
use crate::coverage::Coverage;
use crate::{Error, ObjectWriter};
use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{Error as Fault, MultipartId, PutPayload};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;

/// Parts have this many bytes, or a multiple if there would be too many: 8 MiB.
const PART_BYTES: u64 = 8 << 20;
/// Services take 10,000 parts; some are left for those that count otherwise.
const MAX_PARTS: u64 = 9000;
/// How many parts of one object are in memory or on their way at a time: with what connections hold of them, less than eight parts.
pub(super) const MAX_PARTS_IN_FLIGHT: usize = 7;

/// How large the parts of an object of `len` bytes are; the last is what is left.
fn part_bytes(len: u64) -> u64 {
    let least = len.div_ceil(MAX_PARTS).max(1);
    least.checked_next_multiple_of(PART_BYTES).unwrap_or(least)
}

/// Begins an object of `len` bytes: one put if it is a single part, an upload of many otherwise.
pub(super) fn begin(
    bucket: Arc<Bucket>,
    key: &str,
    path: Path,
    len: u64,
) -> Result<Box<dyn ObjectWriter>, Error> {
    let part_bytes = part_bytes(len);
    let upload = match len <= part_bytes {
        true => None,
        false => {
            let begun = bucket.wait(bucket.client.create_multipart(&path));
            Some(begun.map_err(|fault| bucket.meaning(key, "begin", &fault))?)
        }
    };
    Ok(Box::new(Writer {
        target: Arc::new(Target {
            bucket,
            path,
            upload,
        }),
        key: key.to_owned(),
        len,
        part_bytes,
        room: Room::new(MAX_PARTS_IN_FLIGHT),
        progress: Mutex::new(Progress {
            coverage: Coverage::new(key, len),
            filling: BTreeMap::new(),
            sending: JoinSet::new(),
            sent: BTreeMap::new(),
        }),
        is_finished: false,
    }))
}

/// Where the parts go.
struct Target {
    bucket: Arc<Bucket>,
    path: Path,
    /// The upload, if there is more than one part.
    upload: Option<MultipartId>,
}

struct Writer {
    target: Arc<Target>,
    key: String,
    len: u64,
    part_bytes: u64,
    room: Arc<Room>,
    progress: Mutex<Progress>,
    is_finished: bool,
}

struct Progress {
    coverage: Coverage,
    /// Parts of which bytes are missing.
    filling: BTreeMap<u64, Filling>,
    sending: JoinSet<Result<(u64, PartId), Fault>>,
    /// What the service calls the parts that are there.
    sent: BTreeMap<u64, PartId>,
}

/// A part of which some bytes are there.
struct Filling {
    place: Place,
    filled: usize,
}

impl Writer {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part_len(&self, part: u64) -> usize {
        let start = part * self.part_bytes;
        let len = self.part_bytes.min(self.len - start);
        usize::try_from(len).expect("parts fit the address space")
    }

    /// Copies bytes to their part, for which there is room, and returns it if that completes it.
    fn fill(&self, part: u64, offset: usize, bytes: &[u8]) -> Option<Filling> {
        let len = self.part_len(part);
        let mut progress = self.progress();
        if !progress.filling.contains_key(&part) {
            drop(progress);
            let place = self.room.enter(len);
            progress = self.progress();
            // Somebody else may have begun it meanwhile.
            let new = || Filling { place, filled: 0 };
            progress.filling.entry(part).or_insert_with(new);
        }
        let filling = progress.filling.get_mut(&part);
        let filling = filling.expect("it lacks these bytes");
        filling.place.write(offset, bytes);
        filling.filled += bytes.len();
        let is_complete = filling.filled == len;
        is_complete.then(|| progress.filling.remove(&part).expect("it is there"))
    }

    /// Sends a part.
    fn send(&self, part: u64, mut filled: Filling) {
        filled.place.leave();
        let sending = self.target.clone().put_part(part, filled);
        let runtime = self.target.bucket.runtime().handle();
        self.progress().sending.spawn_on(sending, runtime);
    }

    /// Notes the parts that have arrived, and fails for one that did not.
    fn settle(&self) -> Result<(), Error> {
        let mut progress = self.progress();
        while let Some(done) = progress.sending.try_join_next() {
            let (part, id) = done
                .map_err(|_| self.cut_short())?
                .map_err(|fault| self.failed(&fault))?;
            progress.sent.insert(part, id);
        }
        Ok(())
    }

    /// Waits for all parts; returns what the service calls them, in order.
    fn parts(&self) -> Result<Vec<PartId>, Error> {
        let bucket = &self.target.bucket;
        let mut sending = std::mem::take(&mut self.progress().sending);
        while let Some(done) = bucket.wait(sending.join_next()) {
            let (part, id) = done
                .map_err(|_| self.cut_short())?
                .map_err(|fault| self.failed(&fault))?;
            self.progress().sent.insert(part, id);
        }
        let sent = std::mem::take(&mut self.progress().sent);
        match sent.len() as u64 == self.len.div_ceil(self.part_bytes) {
            true => Ok(sent.into_values().collect()),
            false => Err(self.cut_short()),
        }
    }

    fn failed(&self, fault: &Fault) -> Error {
        self.target.bucket.meaning(&self.key, "write", fault)
    }

    fn cut_short(&self) -> Error {
        Error::Service {
            key: self.key.clone(),
            operation: "write",
            reason: "a part of it could not be written before".to_owned(),
        }
    }

    /// The bytes of an object of one part.
    fn single(&self) -> PutPayload {
        let filling = self.progress().filling.remove(&0);
        filling.map_or_else(PutPayload::new, |filling| payload(filling.place))
    }
}

/// What is sent: it has its room until nobody needs it any more.
fn payload(place: Place) -> PutPayload {
    PutPayload::from(Bytes::from_owner(place))
}

impl Target {
    async fn put_part(self: Arc<Self>, part: u64, filled: Filling) -> Result<(u64, PartId), Fault> {
        let upload = self.upload.as_ref().expect("only uploads have parts");
        let index = usize::try_from(part).expect("there are at most 9000");
        let payload = payload(filled.place);
        let sent = self
            .bucket
            .client
            .put_part(&self.path, upload, index, payload);
        Ok((part, sent.await?))
    }

    /// Makes the parts the object.
    async fn complete(
        &self,
        key: &str,
        len: u64,
        upload: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<(), Error> {
        if self.bucket.find(key, &self.path).await?.is_some() {
            return Err(Error::AlreadyExists {
                key: key.to_owned(),
            });
        }
        let client = &self.bucket.client;
        let Err(fault) = client.complete_multipart(&self.path, upload, parts).await else {
            return Ok(());
        };
        // An answer that was lost, or a second try that finds no upload any more: the object was not there, and now it is.
        match self.bucket.find(key, &self.path).await {
            Ok(Some(meta)) if meta.size == len => Ok(()),
            _ => Err(self.bucket.meaning(key, "finish", &fault)),
        }
    }
}

impl ObjectWriter for Writer {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.settle()?;
        self.progress().coverage.claim(offset, bytes.len() as u64)?;
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let (part, inside) = (at / self.part_bytes, at % self.part_bytes);
            let inside = usize::try_from(inside).expect("parts fit the address space");
            let (now, later) = rest.split_at(rest.len().min(self.part_len(part) - inside));
            match self.fill(part, inside, now) {
                Some(filled) if self.target.upload.is_some() => self.send(part, filled),
                Some(filled) => drop(self.progress().filling.insert(part, filled)),
                None => {}
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn finish_at(mut self: Box<Self>, len: u64) -> Result<(), Error> {
        self.progress().coverage.end_at(len)?;
        self.progress().coverage.check_complete()?;
        self.len = len;
        // All parts but the last are on their way; of the last, there is what was written.
        let last = self.progress().filling.pop_last();
        if let Some((part, mut filling)) = last {
            filling.place.truncate(self.part_len(part));
            match self.target.upload.is_some() {
                true => self.send(part, filling),
                false => drop(self.progress().filling.insert(part, filling)),
            }
        }
        self.finish()
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        self.progress().coverage.check_complete()?;
        let target = self.target.clone();
        let bucket = &target.bucket;
        let Some(upload) = &target.upload else {
            let bytes = self.single();
            return bucket.wait(create(bucket, &self.key, &target.path, bytes));
        };
        let parts = self.parts()?;
        bucket.wait(target.complete(&self.key, self.len, upload, parts))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Writer {
    /// What nobody finishes is given up, so that it costs nothing.
    fn drop(&mut self) {
        let target = self.target.clone();
        if self.is_finished || target.upload.is_none() {
            return;
        }
        if !target.bucket.is_here() {
            // The process that began it goes on with it.
            std::mem::forget(target);
            return;
        }
        let mut sending = std::mem::take(&mut self.progress().sending);
        let key = self.key.clone();
        self.target.bucket.wait(async move {
            // A part that arrives later than the end would stay.
            sending.shutdown().await;
            let upload = target.upload.as_ref().expect("looked at above");
            let bucket = &target.bucket;
            if let Err(fault) = bucket.client.abort_multipart(&target.path, upload).await {
                let error = bucket.meaning(&key, "give up", &fault);
                tracing::warn!(key, %error, "an unfinished upload stays: `cairn prune RUN --incomplete` removes it");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_large_enough_for_any_object_and_never_too_many() {
        for len in [
            0,
            1,
            PART_BYTES,
            PART_BYTES + 1,
            72 << 30,
            5 << 40,
            u64::MAX,
        ] {
            let part = part_bytes(len);
            assert!(
                part >= PART_BYTES && len.div_ceil(part) <= MAX_PARTS,
                "{len}"
            );
        }
        assert_eq!(part_bytes(1 << 30), PART_BYTES);
    }
}
