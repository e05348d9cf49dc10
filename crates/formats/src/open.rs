//! Finds out what lies in a folder or file.

use crate::model::Model;
use crate::{Error, dcp, deepspeed, hf, megatron, orbax, paddle, torch_zip};
use cairn_store::Store;

/// Opens what the folder that `store` is rooted at holds.
///
/// # Errors
/// [`Error::NotAModel`] if it holds nothing that is known; what is wrong with it otherwise.
pub fn open(store: &dyn Store) -> Result<Model, Error> {
    let listing = store.list_files("")?;
    let names: Vec<&str> = listing.iter().map(|meta| meta.key.as_str()).collect();
    if names.contains(&megatron::LATEST_FILE) {
        return megatron::open_latest(store);
    }
    if megatron::is_iteration(&names) {
        return at_step(store, "", megatron::open_iteration(store, ""));
    }
    if deepspeed::is_step(&names) {
        return at_step(store, "", deepspeed::open_step(store, ""));
    }
    // Trainers leave the model beside the state of DeepSpeed; whoever wants the latter opens its folder.
    let has_model = names.iter().any(|name| name.ends_with(".safetensors"));
    if let (false, Some(folder)) = (has_model, deepspeed::latest(store, &names)?) {
        return at_step(store, &folder, deepspeed::open_step(store, &folder));
    }
    if dcp::is_folder(&names) {
        return dcp::open_folder(store, "");
    }
    if orbax::is_folder(&names) {
        return at_step(store, "", orbax::open_folder(store, ""));
    }
    if let Some(model) = paddle::open_folder(store, &names) {
        return model;
    }
    match hf::open_folder(store) {
        Err(Error::NotAModel { place }) => match orbax::latest(store)? {
            Some(folder) => at_step(store, &folder, orbax::open_folder(store, &folder)),
            None => Err(Error::NotAModel { place }),
        },
        opened => opened,
    }
}

/// The model with the step that its folder is named for: `global_step500`, `iter_0000500`, `500`.
fn at_step(store: &dyn Store, folder: &str, model: Result<Model, Error>) -> Result<Model, Error> {
    let url = store.url();
    let name = match folder {
        "" => url.trim_end_matches('/').rsplit('/').next().unwrap_or(""),
        folder => folder,
    };
    let name = name.trim_end_matches("_universal");
    let number = name.trim_start_matches("global_step");
    let number = number.rsplit('_').next().unwrap_or("");
    let step = number.parse().ok();
    model.map(|model| Model { step, ..model })
}

/// Opens the file `key`: safetensors, or what `torch.save` or `paddle.save` wrote.
///
/// # Errors
/// [`Error::NotAModel`] if it is none of them; what is wrong with it otherwise.
pub fn open_file(store: &dyn Store, key: &str) -> Result<Model, Error> {
    if key.ends_with(".safetensors") {
        return hf::open_files(store, &[key]);
    }
    if let Some(model) = paddle::open_file(store, key) {
        return model;
    }
    let torch_name = [".pt", ".pth", ".bin", ".ckpt"]
        .iter()
        .any(|end| key.ends_with(end));
    if torch_name || torch_zip::is_archive(&store.get_prefix(key, 16)?) {
        return torch_zip::open_file(store, key);
    }
    Err(Error::NotAModel {
        place: format!("{}/{key}", store.url()),
    })
}
