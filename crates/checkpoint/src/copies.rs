//! The copies of a step on the tiers of a run: the nearest good one is read, and a nearer one that is damaged is put right.

mod checksums;
mod copying;
mod mend;
mod reader;

pub(crate) use checksums::Checksums;
pub(crate) use copying::Copying;
pub(crate) use mend::mend;
pub(crate) use reader::NearestGood;

use crate::Error;
use crate::error::chain;
use crate::manifest::Manifest;
use crate::names::commit_key;
use crate::seal::digest_of;
use crate::standing::Standing;
use crate::verify::is_deleted;
use cairn_store::{PutMode, Store, Tiered};
use std::sync::Arc;

/// The store that saves go to: the fast tier, or the only one.
pub(crate) fn near(store: &Arc<dyn Store>) -> &Arc<dyn Store> {
    store.tiers().map_or(store, Tiered::fast)
}

/// The store that steps stay in: the durable tier, or the only one.
pub(crate) fn lasting(store: &Arc<dyn Store>) -> &Arc<dyn Store> {
    store.tiers().map_or(store, Tiered::durable)
}

/// Every tier of a store, or the only one.
pub(crate) fn all(store: &Arc<dyn Store>) -> Vec<&Arc<dyn Store>> {
    match store.tiers() {
        Some(tiers) => vec![tiers.fast(), tiers.durable()],
        None => vec![store],
    }
}

/// Reads something small by `read`, from the nearest tier that has it whole.
pub(crate) fn nearest<T>(
    store: &dyn Store,
    key: &str,
    read: impl Fn(&dyn Store) -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(tiers) = store.tiers() else {
        return read(store);
    };
    let near = match read(tiers.fast().as_ref()) {
        Err(error) if !matches!(error, Error::Version { .. }) => error,
        found => return found,
    };
    let far = read(tiers.durable().as_ref());
    settle(tiers, key, near, far)
}

/// The manifest of a step, and its seal. If two tiers name different attempts it is that of the younger one.
pub(crate) fn manifest(store: &dyn Store, step: u64) -> Result<(Manifest, String), Error> {
    let Some(tiers) = store.tiers() else {
        return read_manifest(store, step);
    };
    let far = read_manifest(tiers.durable().as_ref(), step);
    match (read_manifest(tiers.fast().as_ref(), step), far) {
        (Ok(near), Ok(far)) if is_younger(&far.0, &near.0) => Ok(far),
        (Ok(near), far) => {
            if let Err(error) = far
                && !is_absent(&error)
            {
                tracing::warn!(step, error = %chain(&error), "only the fast tier could be asked for a step");
            }
            Ok(near)
        }
        (Err(near @ Error::Version { .. }), _) => Err(near),
        (Err(near), far) => settle(tiers, &commit_key(step), near, far),
    }
}

fn is_younger(far: &Manifest, near: &Manifest) -> bool {
    // Clocks differ, lines only grow.
    far.attempt != near.attempt && (far.line, &far.created) > (near.line, &near.created)
}

/// Reads the manifest that stands in one store, and its seal.
pub(crate) fn read_manifest(store: &dyn Store, step: u64) -> Result<(Manifest, String), Error> {
    let Some(standing) = Standing::read(store, step)? else {
        return Err(match is_deleted(store, step)? {
            true => Error::Deleted { step },
            false => Error::Incomplete {
                step,
                reason: format!("`{}` does not exist", commit_key(step)),
            },
        });
    };
    let (manifest, Standing { key, bytes }) = (standing.manifest()?, standing);
    if manifest.step != step {
        let reason = format!("it is the manifest of step {}", manifest.step);
        return Err(Error::damaged(key, reason));
    }
    let seal = digest_of(&bytes).unwrap_or_default().to_string();
    Ok((manifest, seal))
}

/// Takes what the durable tier has after the fast one failed, and puts the fast one right if that is why.
fn settle<T>(tiers: &Tiered, key: &str, near: Error, far: Result<T, Error>) -> Result<T, Error> {
    match far {
        Err(far) if is_absent(&near) => Err(far),
        Err(_) => Err(near),
        Ok(found) => {
            // What cannot be read now may be good, or not be there.
            if near.is_damage() && !is_absent(&near) {
                put_right(tiers, key, &near);
            }
            Ok(found)
        }
    }
}

/// Replaces a small object of the fast tier by its good copy. Best effort: it was read from there already.
fn put_right(tiers: &Tiered, key: &str, damage: &Error) {
    let (fast, durable) = (tiers.fast(), tiers.durable());
    let copied = durable.get(key);
    match copied.and_then(|bytes| fast.put(key, &bytes, PutMode::Replace)) {
        Ok(()) => {
            tracing::warn!(key, damage = %chain(damage), "replaced by its copy on the durable tier");
        }
        Err(error) => {
            tracing::warn!(key, damage = %chain(damage), %error, "read from the durable tier instead");
        }
    }
}

/// Whether something is not there, rather than damaged.
pub(crate) fn is_absent(error: &Error) -> bool {
    matches!(
        error,
        Error::Incomplete { .. }
            | Error::Deleted { .. }
            | Error::Store {
                source: cairn_store::Error::NotFound { .. },
                ..
            }
    )
}
