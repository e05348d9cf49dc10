//! Where tensors can be loaded from: a Cairn checkpoint, or a model in another format.

use crate::Error;
use crate::error::StoreContext;
use cairn_formats::hf::Model;
use cairn_sharding::{Piece, Region};
use cairn_store::{ObjectReader, Store};
use cairn_tensor::DType;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A stored tensor's type and shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTensor {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

/// A piece of a tensor in a file, its bytes contiguous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPiece {
    /// Which file, as the source counts them.
    pub file: usize,
    /// First byte, counted from the start of the file's data.
    pub offset: u64,
    /// Which elements.
    pub piece: Piece,
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
}

/// Something tensors can be loaded from.
pub trait Source: Sync {
    /// Every name a tensor can be asked for by, in order.
    fn names(&self) -> Vec<&str>;

    /// Those of the names that are only another name of a tensor, and which tensor that is.
    fn aliases(&self) -> BTreeMap<String, String>;

    /// The tensor called `name`.
    fn find(&self, name: &str) -> Option<StoredTensor>;

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
}

impl fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("SourceFile")
            .field("key", &self.key)
            .field("len", &self.reader.len())
            .finish_non_exhaustive()
    }
}

/// A Hugging Face folder or safetensors file.
#[derive(Debug)]
pub struct ModelSource {
    store: Arc<dyn Store>,
    model: Model,
}

impl ModelSource {
    /// A model that lies in `store`.
    pub fn new(store: Arc<dyn Store>, model: Model) -> Self {
        Self { store, model }
    }

    /// What the model contains.
    pub fn model(&self) -> &Model {
        &self.model
    }
}

impl Source for ModelSource {
    fn names(&self) -> Vec<&str> {
        self.model.tensors.keys().map(String::as_str).collect()
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        let located = self.model.tensors.get(name)?;
        Some(StoredTensor {
            dtype: located.dtype,
            shape: located.shape.clone(),
        })
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        let located = self.model.tensors.get(name);
        let whole = located
            .map(|located| StoredPiece {
                file: located.file,
                offset: located.offset,
                piece: Piece::whole(Region::whole(&located.shape)),
            })
            .filter(|stored| stored.piece.region.meets(region));
        Ok(whole.into_iter().collect())
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        let key = self.model.files[file].key.clone();
        let reader = self.store.reader(&key).doing(|| format!("open `{key}`"))?;
        Ok(Arc::new(SourceFile {
            key,
            reader,
            data_start: 0,
            crcs: None,
        }))
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let read = |key: &String| {
            let bytes = self.store.get(key).doing(|| format!("read `{key}`"))?;
            Ok((key.clone(), bytes))
        };
        self.model.assets.iter().map(read).collect()
    }
}
