//! Where tensors can be loaded from: a Cairn checkpoint, or a model in another format.

mod kept;
mod model;

use crate::Error;
use crate::delta::Origins;
use cairn_sharding::{LocalBox, Piece, Region};
use cairn_store::{Location, ObjectReader};
use cairn_tensor::DType;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use kept::Kept;
pub(crate) use kept::OpenFiles;
pub use model::ModelSource;

/// A stored tensor's type and shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTensor {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

/// A piece of a tensor in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPiece {
    /// Which file, as the source counts them.
    pub file: usize,
    /// First byte, counted from the start of the file's data.
    pub offset: u64,
    /// Which elements.
    pub piece: Piece,
    /// How far apart neighbours along each dim are, in elements; `None` if the elements lie side by side in row-major
    /// order. Only whole boxes have strides.
    pub strides: Option<Vec<usize>>,
}

impl StoredPiece {
    /// The piece as boxes of the tensor, with their places in the stored bytes.
    pub(crate) fn boxes(&self) -> Vec<LocalBox> {
        let mut boxes = self.piece.boxes();
        if let (Some(strides), [whole]) = (&self.strides, boxes.as_mut_slice()) {
            whole.local.strides.clone_from(strides);
        }
        boxes
    }
}

/// A file ready to be read.
pub struct SourceFile {
    /// Its key, for messages.
    pub key: String,
    /// Its bytes.
    pub reader: Box<dyn ObjectReader>,
    /// Where its data starts.
    pub data_start: u64,
    /// The CRC of each block of the file, if there are any.
    pub crcs: Option<Vec<u32>>,
    /// Where its bytes really lie, if it is put together from several files.
    pub origins: Option<Arc<Origins>>,
}

/// Something tensors can be loaded from.
pub trait Source: Sync {
    /// Every name a tensor can be asked for by, in order.
    fn names(&self) -> Vec<&str>;

    /// Those of the names that are only another name of a tensor, and which tensor that is.
    fn aliases(&self) -> BTreeMap<String, String>;

    /// The tensor called `name`.
    fn find(&self, name: &str) -> Option<StoredTensor>;

    /// Whether nothing is stored of `name` on purpose: whoever wants it keeps the value they have.
    fn keeps(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// The stored pieces of `name` that meet `region`; together they cover it.
    ///
    /// # Errors
    /// If what is stored contradicts itself.
    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// If it is missing, damaged or not what it should be.
    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error>;

    /// Small files that travel with the tensors, by name.
    ///
    /// # Errors
    /// If one cannot be read or is damaged.
    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error>;

    /// The folders and files that it is read from: nothing is written there as long as it is read.
    fn places(&self) -> Vec<Location>;

    /// Replaces files that were found damaged while good copies of them lay further away, and returns their keys.
    ///
    /// It is called after a load. Nothing depends on it: what cannot be replaced is only logged.
    fn mend(&self) -> Vec<String> {
        Vec::new()
    }
}

impl fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("SourceFile")
            .field("key", &self.key)
            .field("len", &self.reader.len())
            .finish_non_exhaustive()
    }
}
