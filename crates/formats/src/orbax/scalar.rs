//! Arrays without dims that were numbers of Python.

use crate::model::{Model, Tensor};
use crate::{Error, plain};
use cairn_store::Store;
use cairn_tensor::DType;
use serde_json::{Value, json};

/// The number that a tensor is; `None` if it is none of Python's.
pub(super) fn number(
    store: &dyn Store,
    model: &Model,
    tensor: &Tensor,
) -> Result<Option<Value>, Error> {
    let [at] = tensor.pieces.as_slice() else {
        return Ok(None);
    };
    if !tensor.shape.is_empty() {
        return Ok(None);
    }
    let mut bytes = [0; 8];
    let len = tensor.dtype.bits() / 8;
    model.files[at.file].read_at(store, at.offset, &mut bytes[..len.min(8)])?;
    Ok(match tensor.dtype {
        DType::Bool => Some(json!(bytes[0] != 0)),
        DType::I64 => Some(json!(i64::from_le_bytes(bytes))),
        DType::I32 => {
            let [a, b, c, d, ..] = bytes;
            Some(json!(i32::from_le_bytes([a, b, c, d])))
        }
        DType::F64 => Some(plain::float(f64::from_le_bytes(bytes))),
        DType::F32 => {
            let [a, b, c, d, ..] = bytes;
            Some(plain::float(f64::from(f32::from_le_bytes([a, b, c, d]))))
        }
        _ => None,
    })
}
