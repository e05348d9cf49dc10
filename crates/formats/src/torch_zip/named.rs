//! The tensors and values of an archive as part of a model.

use super::directory::Archive;
use super::rebuild::{Located, rebuilt};
use crate::model::{Encoding, Model, PieceAt, Tensor};
use crate::pickle::Pickle;
use crate::{Error, tree};
use cairn_sharding::{Piece, Region};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Adds everything in `pickle` to a model, in which no name may be taken; the archive is its file number `file`.
pub(super) fn add(
    archive: &Archive,
    pickle: &Pickle,
    file: usize,
    model: &mut Model,
) -> Result<(), Error> {
    let tree = tree::flatten(archive.file, archive.reader, pickle.root(), |node| {
        rebuilt(archive.file, node, 0)
    })?;
    let names = tree.tensors.iter().map(|(name, _)| name);
    for name in names.chain(tree.values.keys()) {
        if model.find(name).is_some() || model.values.contains_key(name) {
            let reason = format!("`{name}` is also in another file");
            return Err(Error::damaged(archive.file, reason));
        }
    }
    model.values.extend(tree.values);
    let mut first_names: HashMap<Located, String> = HashMap::new();
    for (name, tensor) in tree.tensors {
        let located = tensor.located(archive)?;
        // Empty tensors lie nowhere, so that their places say nothing.
        if !located.shape.contains(&0) {
            match first_names.entry(located.clone()) {
                Entry::Occupied(first) => {
                    model.aliases.insert(name, first.get().clone());
                    continue;
                }
                Entry::Vacant(new) => {
                    new.insert(name.clone());
                }
            }
        }
        model.tensors.insert(name, located.into_tensor(file));
    }
    Ok(())
}

impl Located {
    /// The tensor that lies there, in the file number `file` of a model.
    pub(crate) fn into_tensor(self, file: usize) -> Tensor {
        let piece = PieceAt {
            file,
            offset: self.offset,
            piece: Piece::whole(Region::whole(&self.shape)),
            encoding: self.strides.map_or(Encoding::RowMajor, Encoding::Strided),
        };
        Tensor {
            dtype: self.dtype,
            shape: self.shape,
            pieces: vec![piece],
        }
    }
}
