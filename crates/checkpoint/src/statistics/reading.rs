//! Reads pieces of one tensor at a time, however many others a source has.

use crate::Error;
use crate::load::{LoadOptions, load};
use crate::problems::Strictness;
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use crate::target::Target;
use cairn_sharding::{Listed, Piece, Region, TensorSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tensor called `name`.
pub(super) fn find(source: &dyn Source, name: &str) -> Result<StoredTensor, Error> {
    source
        .find(name)
        .ok_or_else(|| fault(name, "is not in the checkpoint".into()))
}

/// Reads a piece of `name`, which is a `tensor`, in row-major order.
pub(super) fn read_piece(
    source: &dyn Source,
    name: &str,
    tensor: &StoredTensor,
    piece: &Piece,
) -> Result<Vec<u8>, Error> {
    let len = tensor.dtype.len_bytes(piece.element_count());
    let len = len.ok_or_else(|| fault(name, format!("has a part `{piece}` of odd size")))?;
    let mut bytes = vec![0; len];
    let listed = Listed::new([(0, vec![piece.clone()])].into());
    let spec = TensorSpec::new(tensor.dtype, tensor.shape.clone(), listed);
    let spec = spec.map_err(|source| Error::Placement {
        name: name.to_string(),
        source,
    })?;
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        threads: 1,
        ..LoadOptions::default()
    };
    let only = Only { source, name };
    load(
        &only,
        vec![Target::new(name, &spec, 0, &mut bytes)?],
        &options,
    )?;
    Ok(bytes)
}

/// Something about a tensor that cannot be dealt with.
pub(super) fn fault(name: &str, reason: String) -> Error {
    let name = name.to_string();
    Error::State { name, reason }
}

/// A source in which one name is seen: a load looks at all names there are.
struct Only<'a> {
    source: &'a dyn Source,
    name: &'a str,
}

impl Source for Only<'_> {
    fn names(&self) -> Vec<&str> {
        vec![self.name]
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        self.source.find(name)
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        self.source.pieces(name, region)
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        self.source.open_file(file)
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        Ok(Vec::new())
    }
}
