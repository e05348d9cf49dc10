//! A bucket: its client, and what is known of it.

use super::Client;
use super::fault;
use super::runtime;
use crate::{Error, Upload};
use futures_util::future::BoxFuture;
use object_store::path::Path;
use object_store::{Error as Fault, GetOptions, GetRange, ObjectMeta, ObjectStoreExt};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long a request is tried again, all tries together, unless the settings say otherwise.
pub(super) const RETRY_TIMEOUT: Duration = Duration::from_secs(180);

/// A service that tells which uploads are unfinished.
pub(super) trait Uploads: Send + Sync {
    /// The unfinished uploads of objects in a folder of the bucket, under their names there.
    fn pending<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<Upload>, Fault>>;
}

/// A bucket, open.
pub(super) struct Bucket {
    pub(super) client: Arc<dyn Client>,
    /// Its address, such as `s3://bucket`.
    pub(super) url: String,
    pub(super) uploads: Option<Box<dyn Uploads>>,
    pub(super) retry_timeout: Duration,
    /// Whether the service keeps the condition that an object must be new; not known before somebody asked.
    pub(super) has_one_winner: OnceLock<bool>,
    runtime: &'static Runtime,
    /// Where its threads and connections are.
    process: u32,
}

impl Bucket {
    /// A bucket of a service whose conditions hold.
    pub(super) fn new(client: Arc<dyn Client>, url: &str) -> Result<Self, Error> {
        let runtime = runtime::shared().map_err(|source| Error::Io {
            key: String::new(),
            operation: "start threads for",
            source,
        })?;
        Ok(Self {
            client,
            url: url.trim_end_matches('/').to_owned(),
            uploads: None,
            retry_timeout: RETRY_TIMEOUT,
            has_one_winner: OnceLock::from(true),
            runtime,
            process: std::process::id(),
        })
    }

    /// Whether this process opened it, and not one that this was forked from.
    pub(super) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Waits for an answer.
    pub(super) fn wait<F: Future>(&self, future: F) -> F::Output {
        runtime::wait(self.runtime, future)
    }

    /// The threads that speak to the service.
    pub(super) fn runtime(&self) -> &'static Runtime {
        self.runtime
    }

    /// What a fault means for the object `key`.
    pub(super) fn meaning(&self, key: &str, operation: &'static str, fault: &Fault) -> Error {
        fault::meaning(&self.url, key, operation, fault)
    }

    /// The object at `path`, if it exists.
    pub(super) async fn find(&self, key: &str, path: &Path) -> Result<Option<ObjectMeta>, Error> {
        let fault = match self.client.head(path).await {
            Ok(meta) => return Ok(Some(meta)),
            Err(Fault::NotFound { .. }) => return Ok(None),
            Err(fault) => fault,
        };
        // The answer to HEAD has no body that says why; that to GET has.
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..1)),
            ..GetOptions::default()
        };
        let said = match fault::says_why(&fault) {
            true => fault,
            false => self
                .client
                .get_opts(path, options)
                .await
                .err()
                .unwrap_or(fault),
        };
        Err(self.meaning(key, "describe", &said))
    }
}
