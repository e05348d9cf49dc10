//! A store that several owners have.

use crate::{
    Error, Location, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store, Tiered, Upload,
};
use std::sync::Arc;

impl<S: Store + ?Sized> Store for Arc<S> {
    fn url(&self) -> String {
        (**self).url()
    }

    fn locations(&self, key: &str) -> Vec<Location> {
        (**self).locations(key)
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        (**self).put(key, bytes, mode)
    }

    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        (**self).create(key, len)
    }

    fn create_up_to(&self, key: &str, most: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        (**self).create_up_to(key, most)
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        (**self).reader(key)
    }

    fn get(&self, key: &str) -> Result<Vec<u8>, Error> {
        (**self).get(key)
    }

    fn get_prefix(&self, key: &str, len: usize) -> Result<Vec<u8>, Error> {
        (**self).get_prefix(key, len)
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        (**self).head(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        (**self).list(prefix)
    }

    fn list_files(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        (**self).list_files(prefix)
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        (**self).list_folders(prefix)
    }

    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        (**self).rename(key, to, mode)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        (**self).delete(key)
    }

    fn settle(&self, prefix: &str) -> Result<(), Error> {
        (**self).settle(prefix)
    }

    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        (**self).sweep(prefix)
    }

    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        (**self).available_bytes()
    }

    fn has_one_winner(&self) -> Result<bool, Error> {
        (**self).has_one_winner()
    }

    fn is_linked(&self, prefix: &str) -> Result<bool, Error> {
        (**self).is_linked(prefix)
    }

    fn is_far(&self) -> bool {
        (**self).is_far()
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<Upload>, Error> {
        (**self).uploads(prefix)
    }

    fn abort(&self, upload: &Upload) -> Result<(), Error> {
        (**self).abort(upload)
    }

    fn tiers(&self) -> Option<&Tiered> {
        (**self).tiers()
    }
}
