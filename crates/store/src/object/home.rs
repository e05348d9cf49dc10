//! A bucket for whatever process asks: neither threads nor connections survive a fork.
//!
//! ```text
//! parent   open ─▶ client, connections, threads
//!            └─ fork ─▶ child   first use ─▶ the bucket is opened once more, with a client and threads of its own
//! ```
//!
//! What the parent has is left alone in the child: a lock that one of its threads held at the fork is held for ever.

use super::bucket::Bucket;
use super::runtime;
use crate::Error;
use std::sync::{Arc, Mutex};

/// Opens the bucket again.
pub(super) type Again = Box<dyn Fn() -> Result<Bucket, Error> + Send + Sync>;

/// A bucket, open in this process and in those that are forked from it.
pub(super) struct Home {
    /// As the process that made this has it.
    bucket: Arc<Bucket>,
    again: Option<Again>,
    /// As another process has it. The process that made this never locks it, so that no fork finds it locked by the dead.
    elsewhere: Mutex<Option<Arc<Bucket>>>,
}

impl Home {
    /// `again` opens the bucket in another process; without it, its client is taken there, too.
    pub(super) fn new(bucket: Bucket, again: Option<Again>) -> Arc<Self> {
        Arc::new(Self {
            bucket: Arc::new(bucket),
            again,
            elsewhere: Mutex::default(),
        })
    }

    /// The bucket, as this process has it.
    pub(super) fn bucket(&self) -> Result<Arc<Bucket>, Error> {
        if self.bucket.is_here() {
            return Ok(self.bucket.clone());
        }
        let Some(mut elsewhere) = runtime::lock(&self.elsewhere) else {
            // A process between this one and the first forked while it opened the bucket.
            return self.open().map(Arc::new);
        };
        match elsewhere.as_ref().filter(|bucket| bucket.is_here()) {
            Some(bucket) => Ok(bucket.clone()),
            None => {
                let bucket = Arc::new(self.open()?);
                if let Some(old) = elsewhere.replace(bucket.clone()) {
                    std::mem::forget(old);
                }
                Ok(bucket)
            }
        }
    }

    fn open(&self) -> Result<Bucket, Error> {
        match &self.again {
            Some(again) => again(),
            None => Bucket::new(self.bucket.client.clone(), &self.bucket.url),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.bucket.is_here() {
            // Its connections would wait for threads that are not there.
            std::mem::forget(self.bucket.clone());
        }
    }
}
