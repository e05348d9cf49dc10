//! Creating a small object so that one of many wins, and so that the winner knows it.
//!
//! The condition is the service's (`If-None-Match: *`, `ifGenerationMatch=0`). Two things are left to do here. An answer may be lost on its
//! way, so that whoever won is told of a failure, or, on a second try, that the object exists: every creation leaves a mark with the object, which
//! tells its maker; where a server died before it wrote the mark, the bytes do. And a service may not know the condition, and say nothing: one that is not known is tried out.

use super::bucket::Bucket;
use super::fault;
use crate::Error;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error as Fault, GetOptions, ObjectStoreExt, PutMode, PutOptions,
    PutPayload,
};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// The metadata under which an object keeps the mark of its creation. One word: that is what every service takes.
const MARK: &str = "cairn";
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A number that no other creation has.
fn mark() -> String {
    let half = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", half(), half())
}

/// A key that nobody uses.
pub(super) fn probe_key() -> String {
    format!("probe-{}", mark())
}

/// Creates an object, or tells that the key is taken.
pub(super) async fn create(
    bucket: &Bucket,
    key: &str,
    path: &Path,
    bytes: PutPayload,
) -> Result<(), Error> {
    let folder = path
        .as_ref()
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    let beside = Path::parse(format!("{folder}/{}", probe_key())).expect("both are paths");
    if !has_one_winner(bucket, &beside).await? {
        return create_unless_found(bucket, key, path, bytes).await;
    }
    let mark = mark();
    let deadline = Instant::now() + bucket.retry_timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        let tried = put(bucket, path, bytes.clone(), PutMode::Create, &mark).await;
        let Err(fault) = tried else {
            return Ok(());
        };
        match after(bucket, path, &bytes, &mark, &fault).await {
            Outcome::Won => return Ok(()),
            Outcome::Open if Instant::now() < deadline => {}
            Outcome::Lost => {
                return Err(Error::AlreadyExists {
                    key: key.to_owned(),
                });
            }
            Outcome::Open | Outcome::Failed => return Err(bucket.meaning(key, "create", &fault)),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Puts an object, whatever is there. It has a mark as well, so that nobody takes it for what they created.
pub(super) async fn replace(bucket: &Bucket, path: &Path, bytes: PutPayload) -> Result<(), Fault> {
    put(bucket, path, bytes, PutMode::Overwrite, &mark()).await
}

async fn put(
    bucket: &Bucket,
    path: &Path,
    bytes: PutPayload,
    mode: PutMode,
    mark: &str,
) -> Result<(), Fault> {
    let mut attributes = Attributes::new();
    attributes.insert(Attribute::Metadata(MARK.into()), mark.to_owned().into());
    let options = PutOptions {
        mode,
        attributes,
        ..PutOptions::default()
    };
    bucket
        .client
        .put_opts(path, bytes, options)
        .await
        .map(|_| ())
}

/// What became of a creation that was told to have failed.
enum Outcome {
    Won,
    Lost,
    /// Nobody has won yet: try again.
    Open,
    Failed,
}

async fn after(
    bucket: &Bucket,
    path: &Path,
    bytes: &PutPayload,
    mark: &str,
    fault: &Fault,
) -> Outcome {
    let is_taken = matches!(
        fault,
        Fault::AlreadyExists { .. } | Fault::Precondition { .. }
    );
    if fault::is_conflict(fault) {
        return Outcome::Open;
    }
    if !is_taken && !fault::is_lost_answer(fault) {
        return Outcome::Failed;
    }
    let options = GetOptions {
        head: true,
        ..GetOptions::default()
    };
    match bucket.client.get_opts(path, options).await {
        Ok(found) => {
            let theirs = found.attributes.get(&Attribute::Metadata(MARK.into()));
            let is_ours = match theirs {
                Some(theirs) => theirs.as_ref() == mark,
                // A server that died as it wrote the object may have lost the mark: its bytes tell, too.
                None => has_bytes(bucket, path, bytes).await,
            };
            match is_ours {
                true => Outcome::Won,
                false => Outcome::Lost,
            }
        }
        // Deleted meanwhile by somebody, which is no answer to who won.
        Err(Fault::NotFound { .. }) if is_taken => Outcome::Lost,
        Err(Fault::NotFound { .. }) => Outcome::Open,
        Err(_) if is_taken => Outcome::Lost,
        Err(_) => Outcome::Failed,
    }
}

/// Whether an object is there and has exactly these bytes.
async fn has_bytes(bucket: &Bucket, path: &Path, bytes: &PutPayload) -> bool {
    let Ok(found) = bucket.client.get(path).await else {
        return false;
    };
    if found.meta.size != bytes.content_length() as u64 {
        return false;
    }
    let (found, sent) = (found.bytes().await, bytes.iter().flatten());
    found.is_ok_and(|found| found.iter().eq(sent))
}

/// What is left to do where conditions are not kept: to look first.
async fn create_unless_found(
    bucket: &Bucket,
    key: &str,
    path: &Path,
    bytes: PutPayload,
) -> Result<(), Error> {
    if bucket.find(key, path).await?.is_some() {
        return Err(Error::AlreadyExists {
            key: key.to_owned(),
        });
    }
    let put = bucket.client.put(path, bytes).await;
    put.map(|_| ())
        .map_err(|fault| bucket.meaning(key, "create", &fault))
}

/// Whether the service keeps the condition; found out once, by creating an object at `probe` twice.
pub(super) async fn has_one_winner(bucket: &Bucket, probe: &Path) -> Result<bool, Error> {
    if let Some(known) = bucket.has_one_winner.get() {
        return Ok(*known);
    }
    let found = twice(bucket, probe).await;
    // A leftover would harm nobody.
    let _ = bucket.client.delete(probe).await;
    let found = found.map_err(|fault| bucket.meaning(probe.as_ref(), "create", &fault))?;
    if !found && bucket.has_one_winner.set(false).is_ok() {
        let url = &bucket.url;
        tracing::warn!(
            url,
            "this store ignores conditions: writer 0 alone commits, and two runs must not save the same step at once"
        );
    }
    Ok(*bucket.has_one_winner.get_or_init(|| found))
}

async fn twice(bucket: &Bucket, probe: &Path) -> Result<bool, Fault> {
    for _ in 0..2 {
        let bytes = PutPayload::from_static(b"probe");
        match put(bucket, probe, bytes, PutMode::Create, &mark()).await {
            Ok(()) => {}
            Err(Fault::AlreadyExists { .. } | Fault::Precondition { .. }) => return Ok(true),
            Err(Fault::NotSupported { .. } | Fault::NotImplemented { .. }) => return Ok(false),
            Err(fault) if fault::status(&fault) == Some(501) => return Ok(false),
            Err(fault) => return Err(fault),
        }
    }
    Ok(false)
}
