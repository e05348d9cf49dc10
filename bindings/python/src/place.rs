//! Opens what lies at an address.

use crate::errors::{OrRaise, raise};
use crate::source::Source;
use cairn::checkpoint::signing::PublicKey;
use cairn::checkpoint::{Checkpoint, Place, find_with};
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// Opens what lies at a path: a step of a run, or a model in another format. Of a run, nothing is opened: it is None.
#[pyfunction]
#[pyo3(signature = (url, require_key = None, storage_options = None))]
pub(crate) fn open_place(
    py: Python,
    url: &str,
    require_key: Option<&str>,
    storage_options: Option<BTreeMap<String, String>>,
) -> PyResult<Option<Source>> {
    let key = require_key
        .map(str::parse::<PublicKey>)
        .transpose()
        .or_raise()?;
    let options: Vec<(String, String)> = storage_options.into_iter().flatten().collect();
    let opened = py.detach(|| {
        Ok::<_, cairn::checkpoint::Error>(match find_with(url, &options)? {
            Place::Run(_) => None,
            Place::Step(run, step) => {
                let checkpoint = Checkpoint::open(run, step)?;
                let trusted = match &key {
                    None => checkpoint,
                    Some(key) => checkpoint.require_key(key)?,
                };
                Some(Source::checkpoint(trusted))
            }
            Place::Folder(model) | Place::File(model) => Some(Source::model(model)),
        })
    });
    let opened = opened.or_raise()?;
    if key.is_some()
        && opened
            .as_ref()
            .is_some_and(|found| found.as_checkpoint().is_none())
    {
        let message = format!("`{url}` carries no signature, and one is required");
        let hint = "steps of a run are signed by `cairn sign`".to_string();
        return Err(raise("Untrusted", &message, Some(hint), None));
    }
    Ok(opened)
}
