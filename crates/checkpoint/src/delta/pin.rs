//! The files that a writer may refer to, said before it does.

use crate::Error;
use crate::error::StoreContext;
use crate::manifest::check_version;
use crate::names::AttemptKeys;
use crate::part::field;
use crate::seal::{seal, unseal};
use cairn_store::{PutMode, Store};
use serde_json::{Map, json};

/// Says, durably, that the file of `writer` may refer to `files`. Pruners spare them from now on.
pub(crate) fn put(
    store: &dyn Store,
    keys: &AttemptKeys,
    writer: usize,
    files: &[&str],
) -> Result<(), Error> {
    let mut members = Map::new();
    members.insert("cairn".into(), json!(1));
    members.insert("kind".into(), json!("pin"));
    members.insert("files".into(), json!(files));
    let key = keys.pin(writer);
    let put = store.put(&key, seal(&members).0.as_bytes(), PutMode::Create);
    put.doing(|| format!("write `{key}`"))
}

/// The files that the pin at `key` names; none if it is gone.
///
/// # Errors
/// If it is damaged: what it names must not be deleted, and nobody knows what that is.
pub(crate) fn read(store: &dyn Store, key: &str) -> Result<Vec<String>, Error> {
    let bytes = match store.get(key) {
        Err(cairn_store::Error::NotFound { .. }) => return Ok(Vec::new()),
        result => result.doing(|| format!("read `{key}`"))?,
    };
    let damaged = |reason| Error::damaged(key, reason);
    let sealed = unseal(&bytes).map_err(damaged)?;
    check_version(key, &sealed.members)?;
    field(&sealed.members, "files").map_err(damaged)
}
