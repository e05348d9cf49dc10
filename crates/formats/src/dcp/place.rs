//! From chunks in the metadata to pieces in files.

use super::Files;
use super::metadata::{Chunk, Item, Metadata};
use crate::Error;
use crate::model::{Encoding, Model, PieceAt, Tensor};
use crate::safetensors::{self, Header};
use crate::torch_zip::is_archive;
use cairn_sharding::{Piece, Region};
use cairn_store::Store;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// How the tensors of a file are stored.
enum Framing {
    /// Each in a torch archive.
    Archives,
    /// All in one safetensors file that begins where every one of them claims to.
    Safetensors { start: u64, header: Header },
}

/// Adds every tensor to the model.
pub(super) fn tensors(
    store: &dyn Store,
    metadata: &Metadata,
    files: &Files,
    model: &mut Model,
) -> Result<(), Error> {
    let mut framings: HashMap<usize, Framing> = HashMap::new();
    for (name, tensor) in &metadata.tensors {
        let mut pieces = Vec::with_capacity(tensor.chunks.len());
        for chunk in &tensor.chunks {
            let file = files.index(&chunk.item);
            let framing = match framings.entry(file) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(framing(store, files.key(file), &chunk.item)?),
            };
            let (offset, encoding) = match framing {
                Framing::Archives => archive(&chunk.item),
                Framing::Safetensors { start, header } => {
                    let key = files.key(file);
                    (entry(key, *start, header, name, chunk)?, Encoding::RowMajor)
                }
            };
            let region = Region {
                offset: chunk.offset.clone(),
                extent: chunk.extent.clone(),
            };
            pieces.push(PieceAt {
                file,
                offset,
                piece: Piece::whole(region),
                encoding,
            });
        }
        let tensor = Tensor {
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            pieces,
        };
        model.tensors.insert(name.clone(), tensor);
    }
    Ok(())
}

fn archive(item: &Item) -> (u64, Encoding) {
    let len_bytes = item.len;
    (item.offset, Encoding::TorchArchive { len_bytes })
}

/// Looks at the first bytes of an item.
fn framing(store: &dyn Store, key: &str, item: &Item) -> Result<Framing, Error> {
    let reader = store.reader(key)?;
    let rest = reader.len().saturating_sub(item.offset);
    let mut prefix = [0; 8];
    if rest < 8 {
        return Err(Error::damaged(key, "it ends inside a tensor"));
    }
    reader.read_at(item.offset, &mut prefix)?;
    if is_archive(&prefix) {
        return Ok(Framing::Archives);
    }
    let header = safetensors::read_at(key, reader.as_ref(), item.offset)?;
    Ok(Framing::Safetensors {
        start: item.offset,
        header,
    })
}

/// Where a chunk begins in a safetensors file that begins at `start`.
fn entry(key: &str, start: u64, header: &Header, name: &str, chunk: &Chunk) -> Result<u64, Error> {
    if chunk.item.offset != start {
        return Err(Error::damaged(
            key,
            format!("`{name}` does not begin where the other tensors do"),
        ));
    }
    let entry = header.entries.iter().find(|entry| entry.name == name);
    match entry {
        Some(entry) if entry.shape == chunk.extent => Ok(start + header.data_start + entry.begin),
        // The writer keeps one chunk of a name; of two in one file the first is lost.
        Some(entry) => Err(Error::damaged(
            key,
            format!(
                "it holds `{name}` with shape {:?} instead of {:?}",
                entry.shape, chunk.extent
            ),
        )),
        None => Err(Error::damaged(key, format!("it does not hold `{name}`"))),
    }
}
