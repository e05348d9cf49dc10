//! A source of which some tensors are worked out while they are read.

use crate::Error;
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use cairn_sharding::{Piece, Region};
use cairn_store::ObjectReader;
use cairn_tensor::{DType, Overflow, cast, element_count};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A source that lives as long as whoever reads it.
pub type SharedSource = Arc<dyn Source + Send>;

/// The elements that are worked out at once.
const STRETCH_ELEMENTS: usize = 1 << 20;

/// The most memory that working out tensors takes beside a load's own: for each of its threads the values, the
/// averages and the source of a stretch, and what is read.
pub const MAX_COMPUTED_BUFFER_BYTES: usize =
    4 * (3 * 8 * STRETCH_ELEMENTS + crate::pool::CHUNK_BYTES);

/// How tensors are worked out.
pub(super) trait Formula: Send + Sync {
    /// Fills `values` with the elements `elements`, in row-major order, of the tensor `name`: little-endian `f64`.
    fn values(&self, name: &str, elements: Range<usize>, values: &mut [u8]) -> Result<(), Error>;
}

/// A source in which some tensors are averages; all others, and the side files, are those of another source.
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
    pub(super) fn new(
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
            dtype: tensor.dtype,
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
    dtype: DType,
    len: u64,
}

impl Reader {
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let width = self.dtype.bits() / 8;
        let mut first = usize::try_from(offset).expect("inside a tensor") / width;
        let mut values = vec![0; 8 * STRETCH_ELEMENTS.min(buffer.len() / width)];
        for part in buffer.chunks_mut(STRETCH_ELEMENTS * width) {
            let count = part.len() / width;
            let values = &mut values[..8 * count];
            self.formula
                .values(&self.name, first..first + count, values)?;
            let rounded = cast(DType::F64, self.dtype, values, part, Overflow::Native);
            rounded.map_err(|source| Error::Copy {
                name: self.name.clone(),
                source,
            })?;
            first += count;
        }
        Ok(())
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
