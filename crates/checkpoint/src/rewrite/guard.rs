//! Where a rewrite may not write: into what it reads, and into runs that it does not add a step to.

use crate::Error;
use crate::error::Misplaced;
use crate::error::StoreContext;
use crate::names::{COMMIT, DELETED, HIDDEN, is_attempt_name, step_folder};
use crate::run::all_steps;
use cairn_store::{Location, Store};

/// An error if something that is to be written lies in `places`, which are being read.
///
/// `root` is the folder or file that is written, `keys` are what is written or deleted on the way.
pub(super) fn refuse_input<'a>(
    places: &[Location],
    store: &dyn Store,
    root: &str,
    keys: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    let refuse = |place: &Location| {
        let (url, input) = (store.url(), place.to_string());
        Error::Misplaced(Misplaced::InSource { url, input })
    };
    for target in store.locations(root) {
        if let Some(place) = places.iter().find(|place| target.is_in(place)) {
            return Err(refuse(place));
        }
    }
    for target in keys.flat_map(|key| store.locations(key)) {
        if let Some(place) = places.iter().find(|place| target.is(place)) {
            return Err(refuse(place));
        }
    }
    Ok(())
}

/// An error if the folder is a step, or a run unless only a file is put beside its steps.
pub(super) fn refuse_run(store: &dyn Store, is_file: bool) -> Result<(), Error> {
    let is_taken = is_step(store, "")? || (!is_file && is_run(store)?);
    match is_taken {
        true => Err(Error::Misplaced(Misplaced::InRun { url: store.url() })),
        false => Ok(()),
    }
}

fn is_run(store: &dyn Store) -> Result<bool, Error> {
    for step in all_steps(store)? {
        if is_step(store, &step_folder(step))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a folder is a step of a run, committed or not; others may have such a name, too.
fn is_step(store: &dyn Store, folder: &str) -> Result<bool, Error> {
    let doing = || format!("look into `{folder}` of `{}`", store.url());
    for name in [COMMIT, HIDDEN, DELETED] {
        let key = match folder {
            "" => name.to_string(),
            folder => format!("{folder}/{name}"),
        };
        if store.head(&key).doing(doing)?.is_some() {
            return Ok(true);
        }
    }
    let folders = store.list_folders(folder).doing(doing)?;
    Ok(folders.iter().any(|name| is_attempt_name(name)))
}
