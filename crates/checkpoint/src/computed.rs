//! A source of which some tensors are worked out while they are read.

use crate::Error;
use crate::load::{LoadOptions, load};
use crate::problems::Strictness;
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use crate::target::Target;
use cairn_sharding::{Listed, Piece, Region, TensorSpec};
use cairn_store::ObjectReader;
use cairn_tensor::{DType, element_count};
use std::collections::BTreeMap;
use std::io;
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
    let tensor = source.find(name).ok_or_else(|| Error::State {
        name: name.to_string(),
        reason: "is not in the checkpoint".into(),
    })?;
    let piece = Piece {
        region: Region::whole(&tensor.shape),
        flat: Some(elements.clone()),
    };
    let listed = Listed::new([(0, vec![piece])].into());
    let spec = TensorSpec::new(tensor.dtype, tensor.shape, listed);
    let spec = spec.map_err(|source| Error::Placement {
        name: name.to_string(),
        source,
    })?;
    let mut bytes = vec![0; tensor.dtype.bits() / 8 * elements.len()];
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        threads: 1,
        ..LoadOptions::default()
    };
    load(
        source,
        vec![Target::new(name, &spec, 0, &mut bytes)?],
        &options,
    )?;
    Ok((tensor.dtype, bytes))
}

/// The imagined file of a computed tensor; the base counts its own files from 0 on.
fn file_of(index: usize) -> usize {
    usize::MAX - index
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

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        let Some(index) = self.index(name) else {
            return self.base.pieces(name, region);
        };
        Ok(vec![StoredPiece {
            file: file_of(index),
            offset: 0,
            piece: Piece::whole(Region::whole(&self.tensors[index].2.shape)),
            strides: None,
        }])
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        let Some((_, name, tensor)) = self.tensors.get(usize::MAX - file) else {
            return self.base.open_file(file);
        };
        let count = element_count(&tensor.shape);
        let len = count.and_then(|count| tensor.dtype.len_bytes(count));
        let len = len.ok_or_else(|| Error::State {
            name: name.clone(),
            reason: "is larger than the address space".into(),
        })?;
        let reader = Box::new(Reader {
            formula: self.formula.clone(),
            name: name.clone(),
            tensor: tensor.clone(),
            len: len as u64,
        });
        Ok(Arc::new(SourceFile {
            key: name.clone(),
            reader,
            data_start: 0,
            crcs: None,
        }))
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.base.assets()
    }
}

/// The bytes of a computed tensor.
struct Reader {
    formula: Arc<dyn Formula>,
    name: String,
    tensor: StoredTensor,
    len: u64,
}

impl Reader {
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let bits = self.tensor.dtype.bits();
        let offset = usize::try_from(offset).expect("inside a tensor");
        let first = offset * 8 / bits;
        let elements = first..first + buffer.len() * 8 / bits;
        self.formula
            .fill(&self.name, &self.tensor, elements, buffer)
    }
}

impl ObjectReader for Reader {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), cairn_store::Error> {
        self.fill(offset, buffer)
            .map_err(|error| cairn_store::Error::Io {
                key: self.name.clone(),
                operation: "work out",
                // Whoever gives the failure a context finds the error itself in here.
                source: io::Error::other(error),
            })
    }
}
