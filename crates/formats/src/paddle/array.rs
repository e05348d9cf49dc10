//! Numpy arrays in a pickle: their type, their shape, and where their elements lie in the file.

use super::dtypes;
use crate::model::{Encoding, PieceAt, Tensor};
use crate::pickle::{Node, Policy, Value, Writer};
use crate::torch_zip::sizes;
use crate::{Error, plain};
use cairn_sharding::{Piece, Region};
use cairn_tensor::{DType, element_count};

/// The names that arrays, tensors and plain values are pickled with; byte strings stay in the file.
pub(super) fn policy() -> Policy {
    plain::policy()
        .call(&["__builtin__.tuple", "builtins.tuple"])
        .leave_bytes()
}

/// An array whose elements are in a file.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) offset: u64,
    pub(super) encoding: Encoding,
}

impl Array {
    /// The array as all of a tensor.
    pub(super) fn into_tensor(self, file: usize) -> Tensor {
        let piece = Piece::whole(Region::whole(&self.shape));
        Tensor {
            dtype: self.dtype,
            shape: self.shape.clone(),
            pieces: vec![self.into_piece(file, piece)],
        }
    }

    /// The array as a piece of a tensor.
    pub(super) fn into_piece(self, file: usize, piece: Piece) -> PieceAt {
        PieceAt {
            file,
            offset: self.offset,
            piece,
            encoding: self.encoding,
        }
    }
}

/// Whether `node` is an array, or a tensor: to Paddle, a tuple of a name and an array.
pub(super) fn is_array(node: Node) -> bool {
    let class = array_of(node).class();
    class.is_some_and(|class| class.ends_with(".multiarray._reconstruct"))
}

/// The array or tensor `node`.
///
/// # Errors
/// If its elements are not numbers, or do not lie in the file as they are.
pub(super) fn array(file: &str, node: Node) -> Result<Array, Error> {
    let state = array_of(node).state().and_then(Node::items);
    let state = state.unwrap_or_default();
    let [_, shape, dtype, fortran, data] = state.as_slice() else {
        return Err(Error::damaged(file, "an array is not as numpy writes it"));
    };
    let shape = sizes(*shape).ok_or_else(|| Error::damaged(file, "an array has no shape"))?;
    let dtype = element_type(file, *dtype)?;
    let Value::FileBytes(range) = data.value() else {
        return Err(unsupported(
            file,
            "its arrays are not written as raw bytes, but as text (pickle protocol 2) or objects"
                .into(),
        ));
    };
    let len_bytes = element_count(&shape).and_then(|count| dtype.len_bytes(count));
    if len_bytes.map(|len| len as u64) != Some(range.end - range.start) {
        let reason = format!(
            "an array of shape {shape:?} has {} bytes",
            range.end - range.start
        );
        return Err(Error::damaged(file, reason));
    }
    let encoding = match fortran.as_bool() {
        Some(true) if shape.len() > 1 && !shape.contains(&0) => {
            Encoding::Strided(first_dim_fastest(&shape))
        }
        _ => Encoding::RowMajor,
    };
    Ok(Array {
        dtype,
        shape,
        offset: range.start,
        encoding,
    })
}

/// Puts an array as numpy does, up to its elements; `None` if Paddle has no arrays of that type.
pub(super) fn open(pickle: &mut Writer, dtype: DType, shape: &[usize]) -> Option<()> {
    let name = dtypes::numpy(dtype)?;
    let len = element_count(shape).and_then(|count| dtype.len_bytes(count))?;
    pickle.global("numpy.core.multiarray._reconstruct");
    pickle.mark();
    pickle.global("numpy.ndarray");
    pickle.sizes(&[0]);
    pickle.bytes(b"b");
    pickle.tuple();
    pickle.call();
    pickle.mark();
    pickle.int(1);
    pickle.sizes(shape);
    plain::numpy_dtype(if dtype.bits() == 8 { "|" } else { "<" }, name, pickle);
    pickle.bool(false);
    pickle.bytes_follow(len as u64);
    Some(())
}

/// Puts what follows the elements of an array.
pub(super) fn close(pickle: &mut Writer) {
    pickle.tuple();
    pickle.build();
}

fn array_of(node: Node) -> Node {
    if !matches!(node.class(), Some("builtins.tuple" | "__builtin__.tuple")) {
        return node;
    }
    let args = node.args();
    let inside = args.first().and_then(|pair| pair.items());
    match inside.as_deref() {
        Some([name, array]) if name.as_str().is_some() => *array,
        _ => node,
    }
}

/// The type of `numpy.dtype("f4", …)` with the state `(3, "<", …)`.
fn element_type(file: &str, node: Node) -> Result<DType, Error> {
    let args = node.args();
    let name = args.first().and_then(|name| name.as_str()).unwrap_or("?");
    let state = node.state().and_then(Node::items).unwrap_or_default();
    let order = state.get(1).and_then(|order| order.as_str()).unwrap_or("?");
    if !matches!(order, "<" | "|") {
        return Err(unsupported(
            file,
            format!("its arrays have the byte order `{order}`"),
        ));
    }
    let known = dtypes::of_numpy(name);
    known.ok_or_else(|| unsupported(file, format!("it has arrays of the type `{name}`")))
}

fn first_dim_fastest(shape: &[usize]) -> Vec<usize> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for size in shape {
        strides.push(stride);
        stride *= size;
    }
    strides
}

pub(super) fn unsupported(file: &str, reason: String) -> Error {
    Error::Unsupported {
        file: file.to_string(),
        reason,
        hint: "load it with paddle and save a dict of tensors and plain values again, with protocol 4",
    }
}
