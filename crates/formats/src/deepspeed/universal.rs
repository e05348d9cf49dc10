//! The universal form: a file for everything that is kept of a parameter.

use super::model_states::ModelStates;
use super::partition::Scalar;
use super::saved::{self, Saved};
use super::{MODEL_STATES, UNIVERSAL_FOLDER, name_of, rank_of};
use crate::model::{Model, PieceAt, Tensor};
use crate::pickle::Node;
use crate::{Error, join, plain};
use cairn_sharding::{Piece, Region};
use cairn_store::Store;
use cairn_tensor::element_count;

/// What the optimizer keeps for all parameters.
const OPTIMIZER_FILE: &str = "optimizer_state.pt";

/// Adds everything in a folder with the files `names` to a model.
pub(super) fn open(
    store: &dyn Store,
    folder: &str,
    names: &[String],
    model: &mut Model,
) -> Result<(), Error> {
    let mut files = Vec::new();
    for name in names {
        // Parameters were made whole: other model-parallel ranks have nothing to add.
        let rank = name.strip_suffix(MODEL_STATES).and_then(rank_of);
        if let Some((rank, 0)) = rank {
            files.push((rank, join(folder, name)));
        }
    }
    files.sort();
    let files: Vec<String> = files.into_iter().map(|(_, key)| key).collect();
    let mut states = ModelStates::read(store, &files, model)?;
    states.keep_buffers();
    let zero = join(folder, UNIVERSAL_FOLDER);
    for meta in store.list(&zero)? {
        let inside = meta.key.strip_prefix(&zero).unwrap_or_default();
        let inside = inside.trim_start_matches('/');
        if inside == OPTIMIZER_FILE {
            saved::read(store, &meta.key, model, param_groups)?
                .map(|groups| model.values.insert("optimizer.param_groups".into(), groups));
            continue;
        }
        let Some((parameter, kind)) = inside
            .strip_suffix(".pt")
            .and_then(|inside| inside.rsplit_once('/'))
        else {
            continue;
        };
        let name = name_of(parameter, kind);
        match saved::read(store, &meta.key, model, kept)? {
            Scalar::Value(value) => {
                model.values.insert(name, value);
            }
            Scalar::Tensor(tensor) => {
                let shape = states.shape(parameter).filter(|_| kind != "step");
                let tensor = shaped(&meta.key, tensor, shape)?;
                model.tensors.insert(name, tensor);
            }
        }
    }
    states.place(model)
}

/// What a file holds: `{"param": tensor, …}`, a tensor, or a plain value.
fn kept(saved: &Saved) -> Result<Scalar, Error> {
    let root = saved.pickle.root();
    let node = root.get("param").unwrap_or(root);
    if let Some(tensor) = saved.tensor(node)? {
        return Ok(Scalar::Tensor(tensor));
    }
    let archive = &saved.archive;
    plain::from_pickle(archive.file, archive.reader, node).map(Scalar::Value)
}

fn param_groups(saved: &Saved) -> Result<Option<serde_json::Value>, Error> {
    let archive = &saved.archive;
    let groups = saved.pickle.root().get("param_groups");
    let value = |node: Node| plain::from_pickle(archive.file, archive.reader, node);
    groups.map(value).transpose()
}

/// The tensor in the shape that the parameter has: after stage 3 it is stored flat.
fn shaped(key: &str, tensor: Tensor, shape: Option<&[usize]>) -> Result<Tensor, Error> {
    let Some(shape) = shape.filter(|shape| *shape != tensor.shape) else {
        return Ok(tensor);
    };
    let [at] = tensor.pieces.as_slice() else {
        return Ok(tensor);
    };
    if tensor.shape.len() != 1 || element_count(shape) != Some(tensor.shape[0]) {
        let reason = format!("it holds {:?}, its parameter is {shape:?}", tensor.shape);
        return Err(Error::damaged(key, reason));
    }
    Ok(Tensor {
        dtype: tensor.dtype,
        shape: shape.to_vec(),
        pieces: vec![PieceAt {
            piece: Piece::whole(Region::whole(shape)),
            ..at.clone()
        }],
    })
}
