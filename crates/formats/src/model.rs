//! A model or checkpoint in a foreign format: what it contains, and where the bytes lie.

use cairn_sharding::{Piece, Region};
use cairn_tensor::DType;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// Everything a foreign file or folder holds, without its data.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// What it is, in a word: `hf`, `safetensors`, `torch`, `dcp`, `megatron`, `deepspeed`, `orbax`, `paddle`.
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
    /// The step of training it is of, as its folder says.
    pub step: Option<u64>,
}

/// One data file of a model: an object, or what part of one stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// The key of the object in the store.
    pub key: String,
    /// The length of the data, as it is read.
    pub len_bytes: u64,
    /// How the object holds it; [`Chunks`](crate::Chunks) reads every form.
    pub form: Form,
}

/// How an object holds the data of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// The data is the object.
    Plain,
    /// Part of the object is the data, compressed.
    Zstd(Range<u64>),
    /// The data is small and was read already, from among other things in the object.
    Held(Vec<u8>),
    /// The same, compressed.
    HeldZstd(Vec<u8>),
    /// The data was not stored, since all of it is zero.
    Zeros,
}

impl DataFile {
    /// An object that is its data.
    pub fn plain(key: &str, len_bytes: u64) -> Self {
        Self {
            key: key.to_string(),
            len_bytes,
            form: Form::Plain,
        }
    }
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
