//! The parameters of a program saved for inference: tensors one after another, without names.
//!
//! ```text
//! u32 0  u64 levels  (u64 bytes, offsets)*      nesting of sequences, which parameters do not have
//! u32 0  i32 length  TensorDesc                 protobuf: 1 = type, 2 = dims
//! elements
//! ```
//!
//! The tensors are in the order of their names, which stand in the program beside them: `m.json` or `m.pdmodel` for
//! `m.pdiparams`.

use super::protobuf;
use super::{dtypes, program};
use crate::Error;
use crate::model::{DataFile, Model, Tensor};
use crate::pickle::Input;
use cairn_store::Store;
use cairn_tensor::{DType, element_count};

/// The longest description of one tensor that is read.
pub const MAX_DESCRIPTION_BYTES: u64 = 4 << 10;

/// Opens the file `key`, and the program beside it.
///
/// # Errors
/// If there is no program beside it, or they do not fit together.
pub fn open_file(store: &dyn Store, key: &str) -> Result<Model, Error> {
    let program = program_of(store, key)?;
    let parameters = program::parameters(&program, &store.get(&program)?)?;
    let reader = store.reader(key)?;
    let mut input = Input::new(reader.as_ref(), 0..reader.len());
    let mut model = Model {
        format: "paddle",
        files: vec![DataFile::plain(key, reader.len())],
        ..Model::default()
    };
    for (name, declared) in parameters {
        let tensor = tensor(key, &mut input)?;
        if tensor.shape != declared.shape {
            let (found, shape) = (&tensor.shape, declared.shape);
            let reason = format!("`{name}` has shape {found:?}, in `{program}` it is {shape:?}");
            return Err(Error::damaged(key, reason));
        }
        model.tensors.insert(name, tensor);
    }
    if input.remaining() > 0 {
        let rest = input.remaining();
        return Err(Error::damaged(
            key,
            format!("{rest} bytes are left after the last tensor that `{program}` names"),
        ));
    }
    model.assets.push(program);
    Ok(model)
}

/// The program beside a file of parameters.
fn program_of(store: &dyn Store, key: &str) -> Result<String, Error> {
    let stem = key.strip_suffix(".pdiparams").unwrap_or(key);
    for end in ["json", "pdmodel"] {
        let program = format!("{stem}.{end}");
        if store.head(&program)?.is_some() {
            return Ok(program);
        }
    }
    Err(Error::Unsupported {
        file: key.to_string(),
        reason: format!(
            "the names of its tensors are in `{stem}.json` or `{stem}.pdmodel`, which are not there"
        ),
        hint: "keep the program beside its parameters",
    })
}

/// What stands in front of the elements of a tensor; `None` if Paddle has no such type.
pub fn header(dtype: DType, shape: &[usize]) -> Option<Vec<u8>> {
    let description = protobuf::encode_tensor(dtypes::code(dtype)?, shape);
    let mut bytes = vec![0; 16];
    bytes.extend(u32::try_from(description.len()).ok()?.to_le_bytes());
    bytes.extend(description);
    Some(bytes)
}

/// The next tensor.
fn tensor(key: &str, input: &mut Input) -> Result<Tensor, Error> {
    let ends = || Error::damaged(key, "it ends inside a tensor");
    version(key, input)?;
    for _ in 0..number(key, input, 8)? {
        let len = number(key, input, 8)?;
        input.skip(len).ok_or_else(ends)?;
    }
    version(key, input)?;
    let len = number(key, input, 4)?;
    if len > MAX_DESCRIPTION_BYTES {
        return Err(Error::damaged(
            key,
            format!("a description has {len} bytes"),
        ));
    }
    let description = input.take(len)?.ok_or_else(ends)?.to_vec();
    let (code, shape) = protobuf::tensor(&description)
        .ok_or_else(|| Error::damaged(key, "a description is not as Paddle writes it"))?;
    let dtype = dtypes::of_code(code).ok_or_else(|| Error::Unsupported {
        file: key.to_string(),
        reason: format!("it has tensors of type number {code}"),
        hint: "cast them to another type in Paddle",
    })?;
    let len_bytes = element_count(&shape).and_then(|count| dtype.len_bytes(count));
    let range = len_bytes.and_then(|len| input.skip(len as u64));
    let range = range.ok_or_else(ends)?;
    Ok(Tensor::whole(dtype, shape, 0, range.start))
}

fn version(key: &str, input: &mut Input) -> Result<(), Error> {
    match number(key, input, 4)? {
        0 => Ok(()),
        other => Err(Error::damaged(
            key,
            format!("a tensor has version {other} instead of 0"),
        )),
    }
}

fn number(key: &str, input: &mut Input, width: u64) -> Result<u64, Error> {
    let bytes = input.take(width)?;
    let bytes = bytes.ok_or_else(|| Error::damaged(key, "it ends inside a tensor"))?;
    let bytes = bytes.iter().rev();
    Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
