//! A model or checkpoint in a foreign format: what it contains, and where the bytes lie.

use cairn_sharding::{Piece, Region};
use cairn_tensor::DType;
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything a foreign file or folder holds, without its data.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// What it is, in a word: `hf`, `safetensors`, `torch`, `dcp`, `megatron`, `deepspeed`, `paddle`.
    pub format: &'static str,
    /// Data files with their lengths.
    pub files: Vec<DataFile>,
    /// Name → where its bytes are.
    pub tensors: BTreeMap<String, Tensor>,
    /// Other names of tensors: alias → tensor.
    pub aliases: BTreeMap<String, String>,
    /// Plain values, written as [`plain`](crate::plain) says.
    pub values: BTreeMap<String, Value>,
    /// Keys of configuration and tokenizer files.
    pub assets: Vec<String>,
}

/// One data file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Its key in the store.
    pub key: String,
    /// Its length.
    pub len_bytes: u64,
}

/// A tensor and the stored pieces that make it up. Pieces may overlap; then they hold the same elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Where its elements are.
    pub pieces: Vec<PieceAt>,
}

/// A piece of a tensor in a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceAt {
    /// Index into [`Model::files`].
    pub file: usize,
    /// First byte in that file.
    pub offset: u64,
    /// Which elements.
    pub piece: Piece,
    /// How they lie there.
    pub encoding: Encoding,
}

/// How the elements of a piece lie in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// Side by side, the last dim fastest.
    RowMajor,
    /// A box whose neighbours along each dim are so many elements apart.
    Strided(Vec<usize>),
    /// Inside a torch archive of this length that begins at the offset; [`torch_zip::locate`](crate::torch_zip::locate) finds them.
    TorchArchive {
        /// The length of the archive.
        len_bytes: u64,
    },
}

impl Tensor {
    /// A tensor that lies whole in one place.
    pub fn whole(dtype: DType, shape: Vec<usize>, file: usize, offset: u64) -> Self {
        let piece = PieceAt {
            file,
            offset,
            piece: Piece::whole(Region::whole(&shape)),
            encoding: Encoding::RowMajor,
        };
        Self {
            dtype,
            shape,
            pieces: vec![piece],
        }
    }
}

impl Model {
    /// The tensor called `name`, or another name of it.
    pub fn find(&self, name: &str) -> Option<&Tensor> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        self.tensors.get(name)
    }

    /// Every name a tensor can be asked for by, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .tensors
            .keys()
            .chain(self.aliases.keys())
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names
    }
}
