//! The tensors a program is compiled against: what is known of them without reading them.

use cairn_tensor::DType;
use std::collections::BTreeMap;

/// A tensor, from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// In how many shards it is held: how many different places its shards begin at.
    /// Only `fused_ffn` and `fused_qkv_old` ask for it, whose layouts depend on it.
    pub shards: usize,
}

impl Tensor {
    /// A tensor in one shard.
    pub fn new(dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        Self {
            dtype,
            shape,
            shards: 1,
        }
    }
}

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// The name most like this one, if one is like it at all.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    const LIKE: f64 = 0.6;
    let like = |other: &'a str| (strsim::normalized_levenshtein(name, other), other);
    let best = names
        .into_iter()
        .map(like)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score >= LIKE)
        .map(|(_, near)| near.to_owned())
}
