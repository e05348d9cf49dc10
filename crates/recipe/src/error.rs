//! What can be wrong with a program, where, and what to do next.

mod hint;
mod show;

use cairn_tensor::DType;
use std::fmt;
use std::ops::Range;

/// The most pieces one tensor may be cut into.
pub(crate) const MAX_PIECES: usize = 1 << 18;
/// The most boxes that all tensors of a program may be made of: about 300 MB of them.
pub(crate) const MAX_ALL_PIECES: usize = 1 << 20;
/// The most names one statement may come to, and the most parts a tensor may be cut into by one statement.
pub(crate) const MAX_NAMES: usize = 1 << 16;
/// The most names that all statements of a program may have, written out.
pub(crate) const MAX_ALL_NAMES: usize = 1 << 20;

/// What is wrong, without where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each says what its values are")]
pub enum Problem {
    #[error("unexpected `{found}`: expected {expected}")]
    Unexpected {
        found: String,
        expected: &'static str,
    },
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("`^T` on the right of a statement means nothing: a result is not a view")]
    TransposedTarget,

    #[error("there is no attribute `{name}`")]
    UnknownAttribute { name: String, near: Option<String> },
    #[error("`{attribute}` cannot be `{value}`: expected {expected}")]
    BadValue {
        attribute: String,
        value: String,
        expected: &'static str,
    },
    #[error("`{operation}` needs `{attribute}`")]
    MissingAttribute {
        operation: &'static str,
        attribute: &'static str,
    },
    #[error("`{attribute}` has nothing before it that it belongs to")]
    StrayAttribute { attribute: String },
    #[error("`{operation}` is {expected}, and here are {left} -> {right}")]
    Count {
        operation: &'static str,
        expected: &'static str,
        left: usize,
        right: usize,
    },
    #[error("{parts} heads or parts cannot be dealt to {shards} shards alike")]
    Uneven { parts: usize, shards: usize },

    #[error("there is no tensor `{name}`")]
    NoSuchName { name: String, near: Option<String> },
    #[error("no source and no statement gives `{target}`")]
    NoSource {
        target: String,
        near: Option<String>,
    },
    #[error("`{name}` is optimizer state, which follows its parameter `{parameter}` by itself")]
    NamesState { name: String, parameter: String },
    #[error("`{target}` takes part of its `{state}` from sources that have none")]
    PartOfState { target: String, state: String },
    #[error("`{name}` is {} after renames, so its shards cannot be counted", found.join(" and "))]
    ManyOrigins { name: String, found: Vec<String> },

    #[error("`{pattern}` matches none of the {among}")]
    NoMatch {
        pattern: String,
        among: &'static str,
    },
    #[error("`{name}` has no `{placeholder}`, and another name of the statement has")]
    NoPlaceholder { name: String, placeholder: String },
    #[error("`{pattern}` matches id 0, and there is no id before it")]
    NoIdBefore { pattern: String },

    #[error("there is no dim {axis} in a tensor of {ndim} dims")]
    Axis { axis: i64, ndim: usize },
    #[error("dim {dim} of {shape:?} cannot be cut into {parts} equal parts")]
    Indivisible {
        shape: Vec<usize>,
        dim: usize,
        parts: usize,
    },
    #[error("sizes {sizes:?} do not make up dim {dim} of {shape:?}")]
    Sizes {
        sizes: Vec<usize>,
        shape: Vec<usize>,
        dim: usize,
    },
    #[error("{first:?} and {other:?} cannot be joined along dim {dim}: another dim differs")]
    JoinedShapes {
        first: Vec<usize>,
        other: Vec<usize>,
        dim: usize,
    },
    #[error("there is nothing to join")]
    NothingToJoin,
    #[error("{order:?} is no order of the dims of {shape:?}")]
    Order { order: Vec<i64>, shape: Vec<usize> },
    #[error("{from:?} cannot be reshaped to {to:?}")]
    Reshape { from: Vec<usize>, to: Vec<usize> },
    #[error("{from:?} cannot be padded to {to:?}")]
    Pad { from: Vec<usize>, to: Vec<usize> },
    #[error("{from:?} cannot be cut down to {to:?}")]
    Unpad { from: Vec<usize>, to: Vec<usize> },
    #[error("dim {dim} of {shape:?} is not made of heads of {head} elements, an even number")]
    Heads {
        shape: Vec<usize>,
        dim: usize,
        head: usize,
    },
    #[error("a tensor {shape:?} in blocks of {block:?} does not have scales {scales:?}")]
    Scales {
        shape: Vec<usize>,
        block: Vec<usize>,
        scales: Vec<usize>,
    },
    #[error("a tensor {shape:?} has no blocks of {block:?}")]
    Blocks {
        shape: Vec<usize>,
        block: Vec<usize>,
    },
    #[error("blocks of {block:?} would be put together from several tensors or constants")]
    CutBlocks { block: Vec<usize> },
    #[error("`{target}` comes out as {derived:?}, and {declared:?} is wanted")]
    TargetShape {
        target: String,
        derived: Vec<usize>,
        declared: Vec<usize>,
    },

    #[error("{first} and {other} cannot be joined")]
    JoinedDTypes { first: DType, other: DType },
    #[error("{found} is not the {expected} that `{attribute}` says")]
    NotThatDType {
        attribute: &'static str,
        expected: DType,
        found: DType,
    },
    #[error("{from} elements cannot be read as {to}")]
    Reinterpret { from: DType, to: DType },
    #[error("`{target}` comes out as {derived}, and {declared} is wanted")]
    TargetDType {
        target: String,
        derived: DType,
        declared: DType,
    },

    #[error("`{target}` is made of `{name}`, which is dropped")]
    Dropped { target: String, name: String },

    #[error("`{operation}` cannot be run from right to left: {reason}")]
    Irreversible {
        operation: &'static str,
        reason: &'static str,
    },

    #[error("{what} is too large")]
    TooLarge { what: &'static str },

    #[error("`{name}` is not described well: {reason}")]
    Described { name: String, reason: &'static str },
    #[error("this is not a program: {reason}")]
    Json { reason: String },
}

impl Problem {
    /// One word of a small set that does not change, for programs that react to it.
    pub fn kind(&self) -> &'static str {
        use Problem::*;
        match self {
            Unexpected { .. } | OpenQuote | TransposedTarget => "syntax",
            UnknownAttribute { .. } | BadValue { .. } | MissingAttribute { .. } => "attribute",
            StrayAttribute { .. } | Count { .. } | Uneven { .. } => "attribute",
            NoSuchName { .. } | NoSource { .. } | NamesState { .. } => "name",
            PartOfState { .. } | ManyOrigins { .. } => "name",
            NoMatch { .. } | NoPlaceholder { .. } | NoIdBefore { .. } => "placeholder",
            Axis { .. } | Indivisible { .. } | Sizes { .. } | JoinedShapes { .. } => "shape",
            NothingToJoin | Order { .. } | Reshape { .. } | Pad { .. } | Unpad { .. } => "shape",
            Heads { .. } | Scales { .. } | Blocks { .. } | CutBlocks { .. } => "shape",
            TargetShape { .. } => "shape",
            JoinedDTypes { .. } | NotThatDType { .. } | Reinterpret { .. } => "dtype",
            TargetDType { .. } => "dtype",
            Dropped { .. } => "dropped",
            Irreversible { .. } => "reverse",
            TooLarge { .. } => "limit",
            Described { .. } | Json { .. } => "input",
        }
    }
}

/// A stage that a statement went through on its way to the failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What made this of the stage before: `statement 3`, `$LAYER_ID = 7`, `fused_qkv` …
    pub by: String,
    /// The statement at this stage.
    pub text: String,
    /// Which bytes of the text are at fault, where that is known.
    pub span: Option<Range<usize>>,
}

/// Why a program cannot be read, or cannot be run on the tensors there are.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    problem: Box<Problem>,
    frames: Vec<Frame>,
}

impl Error {
    pub(crate) fn new(problem: Problem, frames: Vec<Frame>) -> Self {
        let problem = Box::new(problem);
        Self { problem, frames }
    }

    /// What is wrong.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// One word of a small set that does not change.
    pub fn kind(&self) -> &'static str {
        self.problem.kind()
    }

    /// From the statement as written to the one that failed; empty if no statement is at fault.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The statement at fault, as written.
    pub fn statement(&self) -> Option<&str> {
        self.frames.first().map(|frame| frame.text.as_str())
    }

    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        self.problem.hint()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl std::error::Error for Error {}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::new(problem, Vec::new())
    }
}
