//! From chunks in the metadata to pieces in files.

use super::Files;
use super::metadata::{Chunk, Item, Metadata};
use crate::Error;
use crate::model::{Encoding, Model, PieceAt, Tensor};
use crate::safetensors;
use crate::torch_zip::is_archive;
use cairn_sharding::{Piece, Region};
use cairn_store::Store;
use cairn_tensor::{DType, element_count};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// How the tensors of a file are stored.
enum Framing {
    /// Each in a torch archive.
    Archives,
    /// All in one safetensors file.
    Safetensors(Together),
}

/// A safetensors file that begins where every one of its tensors claims to.
struct Together {
    start: u64,
    data_start: u64,
    entries: HashMap<String, safetensors::Entry>,
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
                Framing::Archives => {
                    check_len(files.key(file), name, tensor.dtype, chunk)?;
                    archive(&chunk.item)
                }
                Framing::Safetensors(together) => {
                    let offset = together.offset(name, tensor.dtype, chunk);
                    let offset = offset.map_err(|reason| Error::damaged(files.key(file), reason));
                    (offset?, Encoding::RowMajor)
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

/// An error if a chunk has more elements than its archive has room for.
fn check_len(key: &str, name: &str, dtype: DType, chunk: &Chunk) -> Result<(), Error> {
    let count = element_count(&chunk.extent);
    let needed = count.and_then(|count| dtype.len_bytes(count));
    match needed {
        Some(needed) if needed as u64 <= chunk.item.len => Ok(()),
        _ => {
            let (extent, len) = (&chunk.extent, chunk.item.len);
            let reason = format!("`{name}` has {dtype}{extent:?} in {len} bytes of it");
            Err(Error::damaged(key, reason))
        }
    }
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
    let entries = header.entries.into_iter();
    Ok(Framing::Safetensors(Together {
        start: item.offset,
        data_start: header.data_start,
        entries: entries.map(|entry| (entry.name.clone(), entry)).collect(),
    }))
}

impl Together {
    /// Where a chunk begins in the file around this one, or what is wrong with it.
    fn offset(&self, name: &str, dtype: DType, chunk: &Chunk) -> Result<u64, String> {
        if chunk.item.offset != self.start {
            return Err(format!(
                "`{name}` does not begin where the other tensors do"
            ));
        }
        let entry = self.entries.get(name);
        let entry = entry.ok_or_else(|| format!("it does not hold `{name}`"))?;
        // The writer keeps one chunk of a name; of two in one file the first is lost.
        if entry.dtype != dtype || entry.shape != chunk.extent {
            return Err(format!(
                "it holds `{name}` as {}{:?} instead of {dtype}{:?}",
                entry.dtype, entry.shape, chunk.extent
            ));
        }
        Ok(self.start + self.data_start + entry.begin)
    }
}
