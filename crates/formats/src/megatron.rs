//! A checkpoint folder of Megatron (`torch_dist`).
//!
//! ```text
//! latest_checkpointed_iteration.txt     500
//! iter_0000500/
//!     .metadata, __<rank>_<n>.distcp    a folder of `torch.distributed.checkpoint`
//!     common.pt                         what is not sharded: arguments, iteration, schedules
//!     metadata.json                     {"sharded_backend": "torch_dist", …}
//! ```

use crate::model::Model;
use crate::{Error, dcp, join, torch_zip};
use cairn_store::Store;
use serde::Deserialize;

/// Names the newest iteration.
pub const LATEST_FILE: &str = "latest_checkpointed_iteration.txt";
/// What is not sharded.
pub const COMMON_FILE: &str = "common.pt";

const DESCRIPTION_FILE: &str = "metadata.json";
/// Classes that settings are made of: written down as opaque.
const SETTINGS: &[&str] = &["megatron.*", "signal.Signals", "transformer_engine.*"];

#[derive(Deserialize)]
struct Description {
    sharded_backend: String,
}

/// Whether a folder with these files is one iteration.
pub(crate) fn is_iteration(names: &[&str]) -> bool {
    names.contains(&COMMON_FILE) && names.contains(&DESCRIPTION_FILE)
}

/// Opens the newest iteration of the run that `store` is rooted at.
///
/// # Errors
/// If the file that names it is damaged, or [`open_iteration`] fails.
pub fn open_latest(store: &dyn Store) -> Result<Model, Error> {
    let bytes = store.get_prefix(LATEST_FILE, 64)?;
    let text = String::from_utf8_lossy(&bytes);
    let folder = match text.trim() {
        "release" => "release".to_string(),
        number => match number.parse::<u64>() {
            Ok(iteration) => format!("iter_{iteration:07}"),
            Err(_) => {
                let reason = format!("`{number}` is no iteration");
                return Err(Error::damaged(LATEST_FILE, reason));
            }
        },
    };
    let step = folder
        .strip_prefix("iter_")
        .and_then(|number| number.parse().ok());
    let model = open_iteration(store, &folder)?;
    Ok(Model { step, ..model })
}

/// Opens the iteration in the folder `folder` of `store`, `""` for its root.
///
/// # Errors
/// If it is not of the kind `torch_dist`, unfinished, or damaged.
pub fn open_iteration(store: &dyn Store, folder: &str) -> Result<Model, Error> {
    let key = join(folder, DESCRIPTION_FILE);
    let description: Description = match serde_json::from_slice(&store.get(&key)?) {
        Ok(description) => description,
        Err(error) => return Err(Error::damaged(&key, error.to_string())),
    };
    if description.sharded_backend != "torch_dist" {
        return Err(Error::Unsupported {
            file: key,
            reason: format!("its backend is `{}`", description.sharded_backend),
            hint: "only `torch_dist` is read: save with `--ckpt-format torch_dist`",
        });
    }
    let mut model = dcp::open_folder(store, folder)?;
    let policy = torch_zip::policy().build(SETTINGS).call(SETTINGS);
    torch_zip::add_file(store, &join(folder, COMMON_FILE), &policy, &mut model)?;
    model.format = "megatron";
    Ok(model)
}
