//! Two stores as one: a fast one that is written to, and a durable one behind it.
//!
//! ```text
//! tiers:/nvme/run,s3://bucket/run         one fast folder that all ranks see
//! node-tiers:/nvme/run,s3://bucket/run    each node has a fast folder of its own at that path
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Error, Location, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store, Upload};

const SHARED: &str = "tiers:";
const PER_NODE: &str = "node-tiers:";

/// Two stores as one: a fast one that is written to, and a durable one behind it.
///
/// Objects are written to the fast tier and read from the nearest one that has them; listings show both, and a delete reaches both. Nothing
/// is carried from one tier to the other here: who writes decides when that is safe.
///
/// If the durable tier cannot be reached, a listing shows what the fast one has, with a warning; it fails if that is nothing.
#[derive(Debug, Clone)]
pub struct Tiered {
    fast: Arc<dyn Store>,
    durable: Arc<dyn Store>,
    is_per_node: bool,
}

impl Tiered {
    /// A fast tier that every rank sees the whole of, such as a folder of the one machine they run on.
    pub fn new(fast: Arc<dyn Store>, durable: Arc<dyn Store>) -> Self {
        Self {
            fast,
            durable,
            is_per_node: false,
        }
    }

    /// A fast tier that each node has for itself: a rank finds there what its own node wrote, and nothing else.
    pub fn per_node(fast: Arc<dyn Store>, durable: Arc<dyn Store>) -> Self {
        Self {
            is_per_node: true,
            ..Self::new(fast, durable)
        }
    }

    /// The fast tier.
    pub fn fast(&self) -> &Arc<dyn Store> {
        &self.fast
    }

    /// The durable tier.
    pub fn durable(&self) -> &Arc<dyn Store> {
        &self.durable
    }

    /// Whether each node has a fast tier of its own.
    pub fn is_per_node(&self) -> bool {
        self.is_per_node
    }

    /// The same with another fast tier, such as one that something is laid over.
    #[must_use]
    pub fn with_fast(&self, fast: Arc<dyn Store>) -> Self {
        Self {
            fast,
            ..self.clone()
        }
    }

    /// The URL of tiers at these addresses. A comma in the first is written `%2C`, which needs a `file://` URL.
    pub fn address(fast: &str, durable: &str, is_per_node: bool) -> String {
        let scheme = if is_per_node { PER_NODE } else { SHARED };
        format!("{scheme}{fast},{durable}")
    }

    /// Opens the tiers that `address` names, each by its own function; `None` if it names no tiers.
    pub(crate) fn open(
        address: &str,
        open_fast: impl Fn(&str) -> Result<Arc<dyn Store>, Error>,
        open_durable: impl Fn(&str) -> Result<Arc<dyn Store>, Error>,
    ) -> Option<Result<Arc<dyn Store>, Error>> {
        let (rest, is_per_node) = match address.strip_prefix(SHARED) {
            Some(rest) => (rest, false),
            None => (address.strip_prefix(PER_NODE)?, true),
        };
        let Some((fast, durable)) = rest.split_once(',') else {
            return Some(Err(Error::InvalidUrl {
                url: address.to_owned(),
                reason: "tiers are two addresses with a comma between, the fast one first".into(),
            }));
        };
        let opened = open_fast(fast).and_then(|fast| {
            Ok(Arc::new(Self {
                fast,
                durable: open_durable(durable)?,
                is_per_node,
            }) as Arc<dyn Store>)
        });
        Some(opened)
    }

    /// What both tiers have.
    fn joined<T>(
        &self,
        prefix: &str,
        look: impl Fn(&dyn Store) -> Result<Vec<T>, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut found = look(self.fast.as_ref())?;
        match look(self.durable.as_ref()) {
            Ok(others) => found.extend(others),
            Err(error) if found.is_empty() => return Err(error),
            Err(error) => {
                let durable = self.durable.url();
                tracing::warn!(%error, durable, prefix, "the durable tier cannot be listed: only the fast one is looked at");
            }
        }
        Ok(found)
    }

    /// What the nearest tier that has an object says of it.
    fn nearest<T>(&self, look: impl Fn(&dyn Store) -> Result<T, Error>) -> Result<T, Error> {
        match look(self.fast.as_ref()) {
            Err(Error::NotFound { .. }) => look(self.durable.as_ref()),
            found => found,
        }
    }
}

impl Store for Tiered {
    fn url(&self) -> String {
        Self::address(&self.fast.url(), &self.durable.url(), self.is_per_node)
    }

    fn locations(&self, key: &str) -> Vec<Location> {
        [self.fast.locations(key), self.durable.locations(key)].concat()
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        self.fast.put(key, bytes, mode)
    }

    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        self.fast.create(key, len)
    }

    fn create_up_to(&self, key: &str, most: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        self.fast.create_up_to(key, most)
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        self.nearest(|tier| tier.reader(key))
    }

    fn get(&self, key: &str) -> Result<Vec<u8>, Error> {
        self.nearest(|tier| tier.get(key))
    }

    fn get_prefix(&self, key: &str, len: usize) -> Result<Vec<u8>, Error> {
        self.nearest(|tier| tier.get_prefix(key, len))
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        match self.fast.head(key)? {
            None => self.durable.head(key),
            found => Ok(found),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        Ok(distinct(self.joined(prefix, |tier| tier.list(prefix))?))
    }

    fn list_files(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        Ok(distinct(
            self.joined(prefix, |tier| tier.list_files(prefix))?,
        ))
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut folders = self.joined(prefix, |tier| tier.list_folders(prefix))?;
        folders.sort_unstable();
        folders.dedup();
        Ok(folders)
    }

    /// Moves an object of the fast tier.
    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        self.fast.rename(key, to, mode)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        self.fast.delete(key)?;
        self.durable.delete(key)
    }

    /// On the fast tier, where objects are created.
    fn settle(&self, prefix: &str) -> Result<(), Error> {
        self.fast.settle(prefix)
    }

    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        Ok(self.fast.sweep(prefix)? + self.durable.sweep(prefix)?)
    }

    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        self.fast.available_bytes()
    }

    /// Of creators on the fast tier, where objects are created.
    fn has_one_winner(&self) -> Result<bool, Error> {
        self.fast.has_one_winner()
    }

    fn is_far(&self) -> bool {
        self.fast.is_far()
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<Upload>, Error> {
        self.durable.uploads(prefix)
    }

    fn abort(&self, upload: &Upload) -> Result<(), Error> {
        self.durable.abort(upload)
    }

    fn tiers(&self) -> Option<&Tiered> {
        Some(self)
    }
}

/// Objects by key, each as its first finding says.
fn distinct(found: Vec<ObjectMeta>) -> Vec<ObjectMeta> {
    let mut by_key = BTreeMap::new();
    for meta in found {
        by_key.entry(meta.key.clone()).or_insert(meta);
    }
    by_key.into_values().collect()
}
