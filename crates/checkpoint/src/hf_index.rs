//! The Hugging Face index beside data files that hold whole tensors only.

use crate::Error;
use crate::assign::Assignment;
use crate::error::StoreContext;
use crate::image::is_whole;
use crate::layout::{Layout, first_rank, tensor_bytes};
use crate::names::{AttemptKeys, data_file};
use cairn_sharding::Region;
use cairn_store::{PutMode, Store};
use serde_json::{Map, json};
use std::sync::Arc;

/// More writers than this never make a Hugging Face folder: the index would be as large as the manifest is small.
const MAX_WRITERS: usize = 64;

/// Writes `model.safetensors.index.json` into the attempt if every tensor lies whole in one file.
///
/// The attempt's folder can then be opened by anything that opens a Hugging Face model.
pub(crate) fn publish(store: &dyn Store, keys: &AttemptKeys, layout: &Layout) -> Result<(), Error> {
    let Some(index) = index(layout)? else {
        return Ok(());
    };
    let key = keys.index();
    match store.put(&key, index.as_bytes(), PutMode::Create) {
        Err(cairn_store::Error::AlreadyExists { .. }) => Ok(()),
        result => result.doing(|| format!("write `{key}`")),
    }
}

fn index(layout: &Layout) -> Result<Option<String>, Error> {
    if layout.is_empty() || !could_be_whole(layout) {
        return Ok(None);
    }
    let assignment = Assignment::new(Arc::new(layout.clone()), MAX_WRITERS);
    let mut weight_map = Map::new();
    for (tensor, (name, _)) in layout.iter().enumerate() {
        let Some(file) = file_of_whole(&assignment, layout, tensor)? else {
            return Ok(None);
        };
        weight_map.insert(name.to_string(), json!(file));
    }
    let total: u64 = layout.iter().map(|(_, spec)| tensor_bytes(spec)).sum();
    let index = json!({"metadata": {"total_size": total}, "weight_map": weight_map});
    let text = serde_json::to_string_pretty(&index).expect("an index is JSON");
    Ok(Some(text + "\n"))
}

fn could_be_whole(layout: &Layout) -> bool {
    layout.iter().all(|(_, spec)| spec.max_rank() < MAX_WRITERS)
}

/// The file that holds `tensor` whole, if one does.
fn file_of_whole(
    assignment: &Assignment,
    layout: &Layout,
    tensor: usize,
) -> Result<Option<String>, Error> {
    let spec = layout.spec(tensor);
    let whole = Region::whole(spec.shape());
    let mut writers = assignment.writers_of(tensor, &whole)?;
    writers.extend(spec.sharding().map(first_rank));
    for writer in writers {
        let items = assignment.writer(writer)?;
        if items
            .of_tensor(tensor)
            .any(|item| is_whole(&item.piece, spec))
        {
            return Ok(Some(data_file(writer)));
        }
    }
    Ok(None)
}
