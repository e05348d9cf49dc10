//! A source of which some tensors are worked out while they are read.

use crate::Error;
use crate::imagined::{FileNumber, imagined_file};
use crate::load::load_known;
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use crate::target::Target;
use cairn_sharding::{Listed, Piece, Region, TensorSpec};
use cairn_store::Location;
use cairn_tensor::DType;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A source that lives as long as whoever reads it.
pub type SharedSource = Arc<dyn Source + Send>;

/// How tensors are worked out.
pub trait Formula: Send + Sync {
    /// Fills `bytes` with the elements `elements`, in row-major order, of the tensor `name`, which is a `tensor`.
    ///
    /// # Errors
    /// If what it needs cannot be read, or has no answer.
    fn fill(
        &self,
        name: &str,
        tensor: &StoredTensor,
        elements: Range<usize>,
        bytes: &mut [u8],
    ) -> Result<(), Error>;

    /// The places that it reads beside the source it is laid over, as [`Source::places`].
    fn places(&self) -> Vec<Location> {
        Vec::new()
    }
}

/// A source in which some tensors are worked out; all others, and the side files, are those of another source.
///
/// What it computes it computes when asked, for the elements asked for, so that an export streams through little memory.
pub struct Computed {
    base: SharedSource,
    formula: Arc<dyn Formula>,
    /// The tensors that are worked out, in order of names, with the name the formula knows each by.
    tensors: Vec<(String, String, StoredTensor)>,
    is_hidden: fn(&str) -> bool,
}

impl Computed {
    /// The source `base` with `tensors` worked out by `formula`, without the names that `is_hidden`.
    pub fn new(
        base: SharedSource,
        formula: Arc<dyn Formula>,
        tensors: BTreeMap<String, StoredTensor>,
        is_hidden: fn(&str) -> bool,
    ) -> Self {
        let aliases = base.aliases();
        let mut named: BTreeMap<String, (String, StoredTensor)> = BTreeMap::new();
        for (alias, of) in &aliases {
            if let Some(tensor) = tensors.get(of) {
                named.insert(alias.clone(), (of.clone(), tensor.clone()));
            }
        }
        named.extend(
            tensors
                .into_iter()
                .map(|(name, tensor)| (name.clone(), (name, tensor))),
        );
        let tensors = named
            .into_iter()
            .map(|(name, (of, tensor))| (name, of, tensor));
        Self {
            base,
            formula,
            tensors: tensors.collect(),
            is_hidden,
        }
    }

    /// Whether the tensor called `name` is worked out.
    pub fn is_computed(&self, name: &str) -> bool {
        self.index(name).is_some()
    }

    fn index(&self, name: &str) -> Option<usize> {
        let by_name = |(known, _, _): &(String, String, StoredTensor)| known.as_str().cmp(name);
        self.tensors.binary_search_by(by_name).ok()
    }
}

/// Reads some elements of a tensor, in row-major order and the type they are stored in.
///
/// # Errors
/// If there is no such tensor, or it cannot be read.
pub fn read_elements(
    source: &dyn Source,
    name: &str,
    elements: Range<usize>,
) -> Result<(DType, Vec<u8>), Error> {
    let tensor = source.find(name).ok_or_else(|| not_there(name))?;
    let piece = Piece {
        region: Region::whole(&tensor.shape),
        flat: Some(elements),
    };
    let bytes = read_piece(source, name, &tensor, &piece)?;
    Ok((tensor.dtype, bytes))
}

/// Reads a piece of `name`, which is a `tensor`, in row-major order.
pub(crate) fn read_piece(
    source: &dyn Source,
    name: &str,
    tensor: &StoredTensor,
    piece: &Piece,
) -> Result<Vec<u8>, Error> {
    let len = tensor.dtype.len_bytes(piece.element_count());
    let mut bytes = vec![0; len.ok_or_else(|| not_whole(name, piece))?];
    let listed = Listed::new([(0, vec![piece.clone()])].into());
    let spec = TensorSpec::new(tensor.dtype, tensor.shape.clone(), listed);
    let spec = spec.map_err(|source| Error::Placement {
        name: name.to_string(),
        source,
    })?;
    load_known(source, vec![Target::new(name, &spec, 0, &mut bytes)?])?;
    Ok(bytes)
}

pub(crate) fn not_there(name: &str) -> Error {
    Error::State {
        name: name.to_string(),
        reason: "is not in the checkpoint".into(),
    }
}

fn not_whole(name: &str, piece: &Piece) -> Error {
    Error::State {
        name: name.to_string(),
        reason: format!("cannot be read in part: its elements `{piece}` do not fill whole bytes"),
    }
}

impl Source for Computed {
    fn names(&self) -> Vec<&str> {
        let mut names = self.base.names();
        names.retain(|name| !(self.is_hidden)(name));
        names.extend(self.tensors.iter().map(|(name, _, _)| name.as_str()));
        names.sort_unstable();
        names.dedup();
        names
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        let mut aliases = self.base.aliases();
        aliases.retain(|name, _| !(self.is_hidden)(name));
        aliases
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        match self.index(name) {
            Some(index) => Some(self.tensors[index].2.clone()),
            None => self.base.find(name).filter(|_| !(self.is_hidden)(name)),
        }
    }

    fn keeps(&self, name: &str) -> bool {
        self.base.keeps(name)
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        let Some(index) = self.index(name) else {
            let mut pieces = self.base.pieces(name, region)?;
            for piece in &mut pieces {
                piece.file = FileNumber::Base(piece.file).encode();
            }
            return Ok(pieces);
        };
        Ok(vec![StoredPiece {
            file: FileNumber::Imagined(index).encode(),
            offset: 0,
            piece: Piece::whole(Region::whole(&self.tensors[index].2.shape)),
            strides: None,
        }])
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        let index = match FileNumber::decode(file) {
            FileNumber::Base(file) => return self.base.open_file(file),
            FileNumber::Imagined(index) => index,
        };
        let (_, name, tensor) = &self.tensors[index];
        let (formula, of) = (self.formula.clone(), (name.clone(), tensor.clone()));
        imagined_file(name, tensor, move |elements, bytes| {
            formula.fill(&of.0, &of.1, elements, bytes)
        })
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.base.assets()
    }

    fn places(&self) -> Vec<Location> {
        [self.base.places(), self.formula.places()].concat()
    }

    fn mend(&self) -> Vec<String> {
        self.base.mend()
    }
}
