//! What `paddle.save` wrote: one pickle of numpy arrays and plain values.
//!
//! `{"a": {"b": array}, "n": 3}` has the tensor `a.b` and the value `n`. The table of structured names that Paddle adds to
//! the state of a layer is the value [`NAME_TABLE`]. Arrays that protocols 2 and 3 could not hold in one piece are joined.

use super::array::{self, Array};
use super::contents::Contents;
use crate::model::{DataFile, Model, Tensor};
use crate::pickle::Writer;
use crate::{Error, plain};
use cairn_sharding::{Piece, Region};
use cairn_store::Store;
use cairn_tensor::DType;
use serde_json::Value;
use std::collections::BTreeMap;

/// The key of the table from structured names to the names Paddle's counters give.
pub const NAME_TABLE: &str = "StructuredToParameterName@@";
/// The key of the table of arrays that were cut: its spelling is Paddle's.
const CUT_TABLE: &str = "UnpackBigParamInfor@@";

/// The frames of a file that `paddle.load` opens: a dict of these tensors, each row-major, and values. They are what comes
/// before the data of each tensor and, as the last, behind all.
///
/// # Errors
/// The name of a tensor whose type Paddle has no array of, or of a value that can only be named.
pub fn frames(
    tensors: &[(&str, DType, &[usize])],
    values: &BTreeMap<String, Value>,
) -> Result<Vec<Vec<u8>>, String> {
    let mut pickle = Writer::with_bytes();
    let mut frames = Vec::with_capacity(tensors.len() + 1);
    pickle.open_dict();
    for (name, value) in values {
        pickle.str(name);
        plain::to_pickle(value, &mut pickle).ok_or_else(|| name.clone())?;
    }
    for (name, dtype, shape) in tensors {
        pickle.str(name);
        array::open(&mut pickle, *dtype, shape).ok_or_else(|| (*name).to_string())?;
        frames.push(pickle.drain());
        array::close(&mut pickle);
    }
    pickle.dict();
    frames.push(pickle.finish());
    Ok(frames)
}

/// Opens the file `key`.
///
/// # Errors
/// If it is damaged, holds what plain data has no need of, or its arrays do not lie in it as they are.
pub fn open_file(store: &dyn Store, key: &str) -> Result<Model, Error> {
    let mut model = Model {
        format: "paddle",
        ..Model::default()
    };
    let reader = store.reader(key)?;
    let contents = Contents::read(key, reader.as_ref())?;
    let file = model.files.len();
    model.files.push(DataFile::plain(key, reader.len()));
    model.values = contents.values;
    model.aliases = contents.aliases;
    let mut arrays = contents.arrays;
    if let Some(table) = model.values.remove(CUT_TABLE) {
        for (name, entry) in table.as_object().into_iter().flatten() {
            let tensor = joined(key, file, name, entry, &mut arrays)?;
            model.tensors.insert(name.clone(), tensor);
        }
    }
    for (name, array) in arrays {
        model.tensors.insert(name, array.into_tensor(file));
    }
    Ok(model)
}

/// A tensor whose elements were cut into several arrays.
fn joined(
    key: &str,
    file: usize,
    name: &str,
    entry: &Value,
    arrays: &mut BTreeMap<String, Array>,
) -> Result<Tensor, Error> {
    let broken = || Error::damaged(key, format!("the parts of `{name}` do not make it up"));
    let shape = &entry["OriginShape"];
    let shape = shape["$tuple"].as_array().or(shape.as_array());
    let shape: Option<Vec<usize>> = shape.and_then(|dims| {
        let size = |dim: &Value| usize::try_from(dim.as_u64()?).ok();
        dims.iter().map(size).collect()
    });
    let shape = shape.ok_or_else(broken)?;
    let count = cairn_tensor::element_count(&shape).ok_or_else(broken)?;
    let (mut pieces, mut dtype, mut start) = (Vec::new(), None, 0_usize);
    for part in entry["slices"].as_array().into_iter().flatten() {
        let part = part.as_str().and_then(|part| arrays.remove(part));
        let part = part.ok_or_else(broken)?;
        let len = cairn_tensor::element_count(&part.shape).ok_or_else(broken)?;
        let end = start.checked_add(len).ok_or_else(broken)?;
        if end > count || dtype.is_some_and(|dtype| dtype != part.dtype) {
            return Err(broken());
        }
        dtype = Some(part.dtype);
        let piece = Piece {
            region: Region::whole(&shape),
            flat: Some(start..end),
        };
        pieces.push(part.into_piece(file, piece));
        start = end;
    }
    match dtype {
        Some(dtype) if start == count => Ok(Tensor {
            dtype,
            shape,
            pieces,
        }),
        _ => Err(broken()),
    }
}
