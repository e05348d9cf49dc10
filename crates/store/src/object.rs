//! Buckets of object stores: S3 and what speaks like it, Google Cloud Storage, Azure.
//!
//! The client is `object_store`, which signs, retries and speaks to each service; here is what makes of it a [`Store`]: keys below a folder of
//! the bucket, large objects in parts that any thread may write, creations that one wins and that the winner knows of, reads that never mix two
//! versions of an object, and errors that say what they mean.
//!
//! ```text
//! write_at ──▶ part of 8 MiB or more, copied once ──▶ upload, at most `MAX_PARTS_IN_FLIGHT` at a time ─┐
//! write_at ──▶ part …                                                                                 ├─▶ finish: the parts become the object
//! ```

mod address;
#[cfg(feature = "azure")]
mod azure;
mod bucket;
mod create;
mod fault;
#[cfg(feature = "gcs")]
mod gcs;
mod home;
mod names;
#[cfg(feature = "s3")]
mod profile;
mod reader;
mod room;
mod runtime;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "s3")]
mod uploads;
mod writer;

#[cfg(all(feature = "s3", feature = "testing"))]
pub(crate) use uploads::Page;

use crate::{Error, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store, Upload, key};
use bucket::Bucket;
use futures_util::TryStreamExt;
use home::Home;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{CopyMode, CopyOptions, ObjectStore, ObjectStoreExt, PutPayload};
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) use address::{SCHEMES, is_object_url, open};

/// Objects up to this size are renamed by reading and creating them, so that one of several wins: 8 MiB.
const MAX_CREATED_BY_RENAME_BYTES: u64 = 8 << 20;
/// Services copy objects up to 5 GiB by themselves; larger ones pass through here.
const MAX_COPIED_BYTES: u64 = 5 << 30;
/// What is moved at a time of an object that passes through: 64 MiB.
const MOVED_BYTES: u64 = 64 << 20;
/// How long an upload may have a living writer. A save takes minutes.
const MAX_UPLOAD_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A client of a service: it puts and gets objects, and makes large ones from parts.
pub trait Client: ObjectStore + MultipartStore {}

impl<C: ObjectStore + MultipartStore> Client for C {}

/// A folder of a bucket.
pub struct Objects {
    home: Arc<Home>,
    folder: String,
    url: String,
}

impl Debug for Objects {
    /// The address alone: what opens the bucket is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.url)
    }
}

impl Objects {
    /// The folder `folder` of the bucket at `url`, such as `s3://bucket`, that `client` opens and whose conditions hold.
    ///
    /// # Errors
    ///
    /// If the folder is no prefix, or the system has no threads left.
    pub fn new(client: Arc<dyn Client>, url: &str, folder: &str) -> Result<Self, Error> {
        Self::of_bucket(Bucket::new(client, url)?, folder, None)
    }

    /// The folder `folder` of a bucket; `again` opens it once more, in a process that was forked from this one.
    fn of_bucket(bucket: Bucket, folder: &str, again: Option<home::Again>) -> Result<Self, Error> {
        let folder = folder.trim_matches('/');
        key::check_prefix(folder)?;
        let url = match folder {
            "" => bucket.url.clone(),
            folder => format!("{}/{folder}", bucket.url),
        };
        Ok(Self {
            home: Home::new(bucket, again),
            folder: folder.to_owned(),
            url,
        })
    }

    /// The bucket, as this process has opened it.
    fn bucket(&self) -> Result<Arc<Bucket>, Error> {
        self.home.bucket()
    }

    /// Where the object `key` is in the bucket.
    fn place(&self, key: &str) -> Result<Path, Error> {
        key::check(key)?;
        self.path(key)
    }

    /// Where the folder `prefix` is in the bucket.
    fn folder(&self, prefix: &str) -> Result<Path, Error> {
        key::check_prefix(prefix)?;
        self.path(prefix)
    }

    fn path(&self, key: &str) -> Result<Path, Error> {
        let whole = match (self.folder.as_str(), key) {
            (folder, "") => folder.to_owned(),
            ("", key) => key.to_owned(),
            (folder, key) => format!("{folder}/{key}"),
        };
        let refused = |reason| Error::InvalidKey {
            key: key.to_owned(),
            reason,
        };
        let name = names::encode(&whole);
        if name.len() > key::MAX_KEY_BYTES {
            return Err(refused(
                "with its folder it is longer than 1024 bytes, which is the most in a bucket",
            ));
        }
        Path::parse(name).map_err(|_| refused("the object store does not take it"))
    }

    /// The key of an object of the bucket, if it lies in the folder.
    fn key_of(&self, path: &str) -> Option<String> {
        let path = names::decode(path);
        match self.folder.as_str() {
            "" => Some(path),
            folder => Some(path.strip_prefix(folder)?.strip_prefix('/')?.to_owned()),
        }
    }

    fn describe(&self, meta: object_store::ObjectMeta) -> Option<ObjectMeta> {
        Some(ObjectMeta {
            key: self.key_of(meta.location.as_ref())?,
            len: meta.size,
            modified: meta.last_modified.into(),
        })
    }

    fn sorted(&self, found: Vec<object_store::ObjectMeta>) -> Vec<ObjectMeta> {
        let found = found.into_iter();
        let mut found: Vec<ObjectMeta> = found.filter_map(|meta| self.describe(meta)).collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    /// The object as the service describes it, or an error that it does not exist.
    fn existing(&self, key: &str) -> Result<object_store::ObjectMeta, Error> {
        let path = self.place(key)?;
        let bucket = self.bucket()?;
        let found = bucket.wait(bucket.find(key, &path))?;
        found.ok_or_else(|| Error::NotFound {
            key: key.to_owned(),
        })
    }

    /// What lies directly in a folder.
    fn inside(&self, prefix: &str) -> Result<object_store::ListResult, Error> {
        let folder = self.folder(prefix)?;
        let bucket = self.bucket()?;
        let listed = bucket.client.list_with_delimiter(Some(&folder));
        let listed = bucket.wait(listed);
        listed.map_err(|fault| bucket.meaning(prefix, "list", &fault))
    }

    /// Makes the same object under another key, from bytes that pass through here.
    fn copy_through(&self, key: &str, to: &str) -> Result<(), Error> {
        let reader = self.reader(key)?;
        let writer = self.create(to, reader.len())?;
        let mut buffer = Vec::new();
        let mut offset = 0;
        while offset < reader.len() {
            let len = MOVED_BYTES.min(reader.len() - offset);
            buffer.resize(
                usize::try_from(len).expect("64 MiB fit the address space"),
                0,
            );
            reader.read_at(offset, &mut buffer)?;
            writer.write_at(offset, &buffer)?;
            offset += len;
        }
        writer.finish()
    }
}

impl Store for Objects {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        let path = self.place(key)?;
        let payload = PutPayload::from(bytes.to_vec());
        let bucket = self.bucket()?;
        if mode == PutMode::Create {
            return bucket.wait(create::create(&bucket, key, &path, payload));
        }
        let put = bucket.wait(create::replace(&bucket, &path, payload));
        put.map_err(|fault| bucket.meaning(key, "put", &fault))
    }

    /// Of racing creators of an object of several parts, the last to begin its end may replace another's: names of large objects are to be new.
    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        let path = self.place(key)?;
        let bucket = self.bucket()?;
        match bucket.wait(bucket.find(key, &path))? {
            Some(_) => Err(Error::AlreadyExists {
                key: key.to_owned(),
            }),
            None => writer::begin(bucket, key, path, len),
        }
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        let meta = self.existing(key)?;
        Ok(Box::new(reader::Reader::new(self.home.clone(), key, meta)))
    }

    fn get_prefix(&self, key: &str, len: usize) -> Result<Vec<u8>, Error> {
        let path = self.place(key)?;
        let bucket = self.bucket()?;
        bucket.wait(reader::first_bytes(&bucket, key, &path, len as u64))
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        let path = self.place(key)?;
        let bucket = self.bucket()?;
        let meta = bucket.wait(bucket.find(key, &path))?;
        Ok(meta.and_then(|meta| self.describe(meta)))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        let folder = self.folder(prefix)?;
        let bucket = self.bucket()?;
        let listed = bucket.client.list(Some(&folder));
        let listed = bucket.wait(listed.try_collect::<Vec<_>>());
        let listed = listed.map_err(|fault| bucket.meaning(prefix, "list", &fault))?;
        Ok(self.sorted(listed))
    }

    fn list_files(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        Ok(self.sorted(self.inside(prefix)?.objects))
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let found = self.inside(prefix)?.common_prefixes;
        let name = |path: &Path| path.filename().map(names::decode);
        let mut names: Vec<String> = found.iter().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// No service renames: the object is made again under the other key, and then removed from the first.
    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        let target = self.place(to)?;
        let meta = self.existing(key)?;
        if meta.size <= MAX_CREATED_BY_RENAME_BYTES {
            self.put(to, &self.get(key)?, mode)?;
            return self.delete(key);
        }
        if self.head(to)?.is_some() {
            match mode {
                PutMode::Create => return Err(Error::AlreadyExists { key: to.to_owned() }),
                PutMode::Replace if meta.size > MAX_COPIED_BYTES => self.delete(to)?,
                PutMode::Replace => {}
            }
        }
        if meta.size > MAX_COPIED_BYTES {
            self.copy_through(key, to)?;
        } else {
            let options = CopyOptions::default().with_mode(CopyMode::Overwrite);
            let bucket = self.bucket()?;
            let copy = bucket.client.copy_opts(&meta.location, &target, options);
            let copy = bucket.wait(copy);
            copy.map_err(|fault| bucket.meaning(key, "rename", &fault))?;
        }
        self.delete(key)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        let path = self.place(key)?;
        let bucket = self.bucket()?;
        match bucket.wait(bucket.client.delete(&path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(fault) => Err(bucket.meaning(key, "delete", &fault)),
        }
    }

    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        let now = SystemTime::now();
        let is_dead = |upload: &Upload| {
            let age = now.duration_since(upload.begun);
            age.is_ok_and(|age| age > MAX_UPLOAD_AGE)
        };
        let mut swept = 0;
        for upload in self
            .uploads(prefix)?
            .iter()
            .filter(|upload| is_dead(upload))
        {
            self.abort(upload)?;
            swept += 1;
        }
        Ok(swept)
    }

    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    fn has_one_winner(&self) -> Result<bool, Error> {
        let place = self.path(&create::probe_key())?;
        let bucket = self.bucket()?;
        bucket.wait(create::has_one_winner(&bucket, &place))
    }

    fn is_far(&self) -> bool {
        true
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<Upload>, Error> {
        let folder = self.folder(prefix)?;
        let bucket = self.bucket()?;
        let Some(uploads) = &bucket.uploads else {
            return Ok(Vec::new());
        };
        let pending = match bucket.wait(uploads.pending(folder.as_ref())) {
            // Whoever runs the service has to look after them then.
            Err(fault) if fault::is_not_offered(&fault) => {
                tracing::debug!(url = %self.url(), "unfinished uploads cannot be listed");
                return Ok(Vec::new());
            }
            pending => pending,
        };
        let pending = pending.map_err(|fault| bucket.meaning(prefix, "list", &fault))?;
        let known = pending.into_iter().filter_map(|upload| {
            let key = self.key_of(&upload.key)?;
            Some(Upload { key, ..upload })
        });
        Ok(known.collect())
    }

    fn abort(&self, upload: &Upload) -> Result<(), Error> {
        let path = self.place(&upload.key)?;
        let bucket = self.bucket()?;
        let abort = bucket.client.abort_multipart(&path, &upload.id);
        match bucket.wait(abort) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(fault) => Err(bucket.meaning(&upload.key, "give up", &fault)),
        }
    }
}
