//! A checkpoint of DeepSpeed: a state that ZeRO cut over ranks, or the universal form that is cut by parameter.
//!
//! ```text
//! latest                                                global_step500
//! global_step500/
//!     mp_rank_00_model_states.pt                        names and shapes, buffers, what the caller added
//!     zero_pp_rank_<rank>_mp_rank_00_optim_states.pt    the rank's part of the f32 weights and their moments, flat
//! latest_universal                                      global_step500_universal
//! global_step500_universal/
//!     mp_rank_00_model_states.pt
//!     zero/<parameter>/{fp32,exp_avg,exp_avg_sq}.pt     what `ds_to_universal` makes of the above
//! ```
//!
//! Weights have their own names and are the f32 ones, moments are `optimizer.<parameter>.exp_avg` and the like. Frozen
//! parameters and buffers are as they were stored, and of shared parameters the others are aliases. Flat buffers are not
//! read: a parameter is the ranges of them that it lies in, without the padding between.

mod layout;
mod model_states;
mod partition;
mod saved;
mod stream;
#[cfg(test)]
mod tests;
mod universal;

use crate::model::Model;
use crate::{Error, join};
use cairn_store::Store;
use layout::Layout;
use model_states::ModelStates;
use partition::Partition;

/// The files that name the newest step.
const LATEST_FILES: [&str; 2] = ["latest", "latest_universal"];
/// How names of files with names and shapes end.
const MODEL_STATES: &str = "_model_states.pt";
/// How names of files with flat buffers end.
const OPTIM_STATES: &str = "_optim_states.pt";
/// The folder of the universal form.
const UNIVERSAL_FOLDER: &str = "zero";
/// What DeepSpeed calls the weights among the things it keeps of a parameter.
const WEIGHT: &str = "fp32";

/// Whether a folder with these files is one step.
pub(crate) fn is_step(names: &[&str]) -> bool {
    names.iter().any(|name| name.ends_with(MODEL_STATES))
}

/// The folder of the newest step of the run that `store` is rooted at, if DeepSpeed wrote one there.
pub(crate) fn latest(store: &dyn Store, names: &[&str]) -> Result<Option<String>, Error> {
    for file in LATEST_FILES.iter().filter(|file| names.contains(file)) {
        let bytes = store.get_prefix(file, 256)?;
        let text = String::from_utf8_lossy(&bytes);
        let folder = text.trim();
        // Other programs have a file of this name, too; theirs names something else.
        if !store.list_folders("")?.iter().any(|name| name == folder) {
            continue;
        }
        let inside = file_names(store, folder)?;
        if is_step(&inside.iter().map(String::as_str).collect::<Vec<_>>()) {
            return Ok(Some(folder.to_string()));
        }
    }
    Ok(None)
}

/// Opens the step in the folder `folder` of `store`, `""` for its root.
///
/// # Errors
/// If files of some ranks are missing, they do not fit together, or the model was cut over more than data-parallel ranks.
pub fn open_step(store: &dyn Store, folder: &str) -> Result<Model, Error> {
    let names = file_names(store, folder)?;
    let mut model = Model {
        format: "deepspeed",
        ..Model::default()
    };
    let universal = store.list_folders(folder)?;
    if universal.iter().any(|name| name == UNIVERSAL_FOLDER) {
        universal::open(store, folder, &names, &mut model)?;
        return Ok(model);
    }
    let files = rank_files(folder, &names, MODEL_STATES)?;
    let states = ModelStates::read(store, &files, &mut model)?;
    let files = rank_files(folder, &names, OPTIM_STATES)?;
    let mut partitions = Vec::new();
    for file in &files {
        partitions.push(Partition::read(store, file, &mut model)?);
    }
    let place = join(folder, &format!("*{OPTIM_STATES}"));
    let layouts = match partitions.is_empty() {
        // From stage 3 on the files with the model have none of its elements.
        true if names.iter().any(|name| name.starts_with("zero_pp_rank_")) => {
            let reason = "no rank wrote its part".into();
            return Err(Error::Unfinished { place, reason });
        }
        // Without ZeRO the file with the model holds everything.
        true => Vec::new(),
        false => Layout::all(&place, &states, &partitions)?,
    };
    for layout in &layouts {
        layout.place(&mut model)?;
    }
    if let Some(first) = partitions.into_iter().next() {
        let groups = first.param_groups;
        model.values.insert("optimizer.param_groups".into(), groups);
    }
    states.place(&mut model)?;
    Ok(model)
}

/// The names of the files directly in a folder.
fn file_names(store: &dyn Store, folder: &str) -> Result<Vec<String>, Error> {
    let listing = store.list_files(folder)?;
    let name = |key: String| key.rsplit('/').next().unwrap_or_default().to_string();
    Ok(listing.into_iter().map(|meta| name(meta.key)).collect())
}

/// The files of all ranks whose names end like this, in the order of ranks.
fn rank_files(folder: &str, names: &[String], end: &str) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(end)) {
        match rank_of(name.strip_suffix(end).unwrap_or_default()) {
            Some((rank, 0)) => found.push((rank, join(folder, name))),
            _ => {
                return Err(Error::Unsupported {
                    file: join(folder, name),
                    reason: "its model was cut over tensor-, pipeline- or expert-parallel ranks"
                        .into(),
                    hint: "make it universal with `python -m deepspeed.checkpoint.ds_to_universal`, and open that",
                });
            }
        }
    }
    found.sort();
    let is_rank = |(index, (rank, _)): (usize, &(usize, String))| index == *rank;
    match found.iter().enumerate().all(is_rank) {
        true => Ok(found.into_iter().map(|(_, key)| key).collect()),
        false => Err(Error::Unfinished {
            place: join(folder, &format!("*{end}")),
            reason: format!("there are {} files, not one of every rank", found.len()),
        }),
    }
}

/// The data- and model-parallel rank in `[bf16_][zero_pp_rank_<rank>_]mp_rank_<rank>`.
fn rank_of(name: &str) -> Option<(usize, usize)> {
    let name = name.strip_prefix("bf16_").unwrap_or(name);
    let (rank, name) = match name.strip_prefix("zero_pp_rank_") {
        Some(rest) => rest.split_once('_')?,
        None => ("0", name),
    };
    let model_rank = name.strip_prefix("mp_rank_")?;
    Some((rank.parse().ok()?, model_rank.parse().ok()?))
}

/// What something that is kept of a parameter is called.
fn name_of(parameter: &str, kind: &str) -> String {
    match kind {
        WEIGHT => parameter.to_string(),
        _ => format!("optimizer.{parameter}.{kind}"),
    }
}
