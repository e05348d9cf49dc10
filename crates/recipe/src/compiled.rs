//! What a program comes to: where each element of each target is from.

use cairn_sharding::Region;
use cairn_tensor::DType;
use std::collections::BTreeMap;

/// A program compiled against the tensors it will find.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Compiled {
    /// The tensors it makes, by name.
    pub targets: BTreeMap<String, Target>,
    /// Sources that nothing is made of, on purpose.
    pub dropped: Vec<String>,
    /// What the writer of the program may want to know.
    pub warnings: Vec<String>,
}

/// A tensor that a program makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Where its elements are from: every element is in one piece. `None` if no source feeds it and the model keeps its own value.
    pub pieces: Option<Vec<Piece>>,
}

/// A box of a target, and what it is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Where it lies in the target.
    pub region: Region,
    /// What is read for it; `None` for a constant, which its only step gives.
    pub source: Option<SourceBox>,
    /// What is done to that, in order, to give the elements of `region`.
    pub steps: Vec<Step>,
}

/// A box of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceBox {
    /// The name of the source.
    pub name: String,
    /// Which elements of it.
    pub region: Region,
}

/// Something done to a box.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Dim `i` of the result is dim `permute[i]` of what was there.
    Permute(Vec<usize>),
    /// The same elements in row-major order, in another shape.
    Reshape(Vec<usize>),
    /// The same values in another element type.
    Cast(DType),
    /// Every element is this value: rows that pad a vocabulary.
    Fill(f64),
}
