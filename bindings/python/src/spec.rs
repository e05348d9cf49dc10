//! Which rank holds what of a tensor, as Python builds it.

use crate::errors::{OrRaise, raise};
use cairn::sharding::{DimSharding, Listed, Mesh, Piece, Region, Sharding, TensorSpec};
use cairn::tensor::DType;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Offset and extent of a box, and the range of its elements if not all are meant.
type PieceTuple = (Vec<usize>, Vec<usize>, Option<(usize, usize)>);

/// A tensor's element type, its shape, and which rank holds what.
#[pyclass(frozen, eq, module = "cairn._cairn")]
#[derive(PartialEq)]
pub(crate) struct Spec(pub(crate) TensorSpec);

#[pymethods]
impl Spec {
    /// A tensor cut along a mesh: for each dim the axes that split it, by index, outermost first.
    #[staticmethod]
    #[pyo3(signature = (dtype, shape, axes, ranks, dims))]
    fn mesh(
        dtype: &str,
        shape: Vec<usize>,
        axes: Vec<(String, usize)>,
        ranks: Option<Vec<usize>>,
        dims: Vec<Vec<usize>>,
    ) -> PyResult<Self> {
        let mesh = match ranks {
            Some(ranks) => Mesh::with_ranks(axes, ranks),
            None => Mesh::new(axes),
        };
        let mesh = mesh.or_raise()?;
        let dims = dims.into_iter().map(DimSharding::split).collect();
        let sharding = Sharding::new(&mesh, dims).or_raise()?;
        Self::build(dtype, shape, sharding)
    }

    /// A tensor that each of `ranks` holds whole.
    #[staticmethod]
    fn replicated(dtype: &str, shape: Vec<usize>, ranks: Vec<usize>) -> PyResult<Self> {
        let mesh = match ranks.len() {
            1 => Mesh::with_ranks(Vec::<(String, usize)>::new(), ranks),
            count => Mesh::with_ranks([("replica", count)], ranks),
        };
        let sharding = Sharding::replicated(&mesh.or_raise()?, shape.len());
        Self::build(dtype, shape, sharding)
    }

    /// A tensor whose pieces are listed rank by rank: (offset, extent, flat range or None).
    #[staticmethod]
    fn listed(
        dtype: &str,
        shape: Vec<usize>,
        pieces: BTreeMap<usize, Vec<PieceTuple>>,
    ) -> PyResult<Self> {
        let piece = |(offset, extent, flat): PieceTuple| Piece {
            region: Region { offset, extent },
            flat: flat.map(|(start, end)| start..end),
        };
        let of_rank =
            |(rank, list): (usize, Vec<PieceTuple>)| (rank, list.into_iter().map(piece).collect());
        let listed = Listed::new(pieces.into_iter().map(of_rank).collect());
        Self::build(dtype, shape, listed)
    }

    /// A tensor from text, such as `bf16[4096@tp, 1024]` on the mesh `dp=2,tp=4`.
    #[staticmethod]
    fn parse(mesh: &str, spec: &str) -> PyResult<Self> {
        let mesh = mesh.parse::<Mesh>().or_raise()?;
        TensorSpec::parse(&mesh, spec).or_raise().map(Self)
    }

    /// The element type, such as `bf16`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype().name()
    }

    /// The shape of the whole tensor.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.0.shape().to_vec()
    }

    /// The bytes of the whole tensor.
    #[getter]
    fn nbytes(&self) -> Option<usize> {
        let count = cairn::tensor::element_count(self.0.shape())?;
        self.0.dtype().len_bytes(count)
    }

    /// The shape of the rank's buffer, or None if it holds nothing.
    fn local_shape(&self, rank: usize) -> Option<Vec<usize>> {
        self.0.local_shape(rank)
    }

    /// What the rank holds: (offset, extent, flat range or None).
    fn pieces(&self, rank: usize) -> Vec<PieceTuple> {
        let tuple = |piece: Piece| {
            let flat = piece.flat.map(|range| (range.start, range.end));
            (piece.region.offset, piece.region.extent, flat)
        };
        self.0.pieces(rank).into_iter().map(tuple).collect()
    }

    /// The ranks that hold a part.
    fn ranks(&self) -> Vec<usize> {
        self.0.ranks()
    }

    /// Whether another tensor has the same shape and lies on the same ranks in the same way, whatever its type.
    fn lies_as(&self, other: &Spec) -> bool {
        self.0.shape() == other.0.shape() && self.0.distribution() == other.0.distribution()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Spec({})", self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.to_string().hash(&mut hasher);
        hasher.finish()
    }
}

impl Spec {
    fn build(
        dtype: &str,
        shape: Vec<usize>,
        distribution: impl Into<cairn::sharding::Distribution>,
    ) -> PyResult<Self> {
        TensorSpec::new(parse_dtype(dtype)?, shape, distribution)
            .or_raise()
            .map(Self)
    }
}

/// The element type called `name`.
pub(crate) fn parse_dtype(name: &str) -> PyResult<DType> {
    let dtype = name.parse();
    dtype.map_err(|error: cairn::tensor::Error| {
        raise("StateError", &error.to_string(), error.hint(), None)
    })
}
