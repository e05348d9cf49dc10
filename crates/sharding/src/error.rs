//! What can be wrong with a mesh, a sharding or a piece.

use cairn_tensor::{DType, ReduceOp};

/// Why a mesh, a sharding, a region or a tensor spec was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text does not follow its grammar.
    #[error("`{text}` is not a {what}: expected {expected}")]
    Syntax {
        /// What was to be read: "mesh", "region" …
        what: &'static str,
        /// The text, or the part of it that cannot be read.
        text: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// The element type is unknown, or cannot be reduced as asked.
    #[error(transparent)]
    Tensor(#[from] cairn_tensor::Error),
    /// Something is larger than its named limit.
    #[error("{actual} {what} are more than the limit of {limit}")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// How many there are.
        actual: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A name cannot be used for a mesh axis.
    #[error("`{name}` is not a name for a mesh axis")]
    AxisName {
        /// The refused name.
        name: String,
    },
    /// Two axes of a mesh have the same name.
    #[error("the mesh has two axes named `{axis}`")]
    DuplicateAxis {
        /// The name.
        axis: String,
    },
    /// A mesh axis has size 0.
    #[error("mesh axis `{axis}` has size 0")]
    EmptyAxis {
        /// The name of the axis.
        axis: String,
    },
    /// A mesh was given more or fewer ranks than its axes span.
    #[error("the axes span {expected} ranks, but {actual} were given")]
    RankCount {
        /// The product of the axis sizes.
        expected: usize,
        /// The number of ranks given.
        actual: usize,
    },
    /// A rank stands twice in a mesh.
    #[error("rank {rank} stands twice in the mesh")]
    DuplicateRank {
        /// The rank.
        rank: usize,
    },
    /// The mesh has no such axis.
    #[error("the mesh has no axis `{axis}`")]
    UnknownAxis {
        /// The name asked for.
        axis: String,
        /// The axes the mesh has.
        valid: Vec<String>,
    },
    /// A sharding uses one mesh axis twice.
    #[error("mesh axis `{axis}` is used twice")]
    AxisUsedTwice {
        /// The name of the axis.
        axis: String,
    },
    /// A sharding is pinned to a coordinate its axis does not have.
    #[error("`{axis}={index}` is outside the mesh: axis `{axis}` has size {size}")]
    PinOutOfRange {
        /// The name of the axis.
        axis: String,
        /// The coordinate asked for.
        index: usize,
        /// The size of the axis.
        size: usize,
    },
    /// Partial values over several axes are combined by operations that do not commute.
    #[error("a tensor cannot be partial by both `{first}` and `{second}`")]
    MixedReductions {
        /// One operation.
        first: ReduceOp,
        /// The other one.
        second: ReduceOp,
    },
    /// The number of placements is not the number of mesh axes.
    #[error("{placements} placements were given for a mesh of {axes} axes")]
    PlacementCount {
        /// The placements given.
        placements: usize,
        /// The axes of the mesh.
        axes: usize,
    },
    /// A dim does not exist in the tensor.
    #[error("dim {dim} is outside a tensor of {ndim} dims")]
    DimOutOfRange {
        /// The dim asked for.
        dim: usize,
        /// The number of dims of the tensor.
        ndim: usize,
    },
    /// An interleaved dim has no groups.
    #[error("dim {dim} is interleaved in 0 groups")]
    ZeroGroups {
        /// The dim.
        dim: usize,
    },
    /// A tensor has more bytes than can be addressed, or does not fill whole bytes.
    #[error("a tensor of {dtype} with shape {shape:?} has no length in bytes")]
    Unaddressable {
        /// The element type.
        dtype: DType,
        /// The shape of the tensor.
        shape: Vec<usize>,
    },
    /// A listed piece reaches outside the tensor.
    #[error("piece `{piece}` of rank {rank} is outside a tensor of shape {shape:?}")]
    PieceOutside {
        /// The rank that lists it.
        rank: usize,
        /// The piece, as it prints.
        piece: String,
        /// The shape of the tensor.
        shape: Vec<usize>,
    },
    /// Two pieces listed for one rank share elements.
    #[error("pieces `{first}` and `{second}` of rank {rank} overlap")]
    PiecesOverlap {
        /// The rank that lists them.
        rank: usize,
        /// One piece, as it prints.
        first: String,
        /// The other piece, as it prints.
        second: String,
    },
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Tensor(error) => error.hint(),
            Error::AxisName { .. } => Some(
                "use letters, digits, `_`, `.` and `-`, starting with a letter or `_`".to_owned(),
            ),
            Error::UnknownAxis { valid, .. } if valid.is_empty() => {
                Some("this mesh has one rank and no axes".to_owned())
            }
            Error::UnknownAxis { valid, .. } => {
                Some(format!("its axes are `{}`", valid.join("`, `")))
            }
            Error::PinOutOfRange { size, .. } => {
                Some(format!("valid coordinates are 0 to {}", size - 1))
            }
            Error::MixedReductions { .. } => Some(
                "reduce over one of the axes first; only `sum` and `avg` can be mixed".to_owned(),
            ),
            Error::PlacementCount { .. } => {
                Some("give one placement for each mesh axis, in mesh order".to_owned())
            }
            _ => None,
        }
    }
}
