//! The parameters of a program saved for inference: tensors one after another, without names.
//!
//! ```text
//! u32 0  u64 levels  (u64 bytes, offsets)*      nesting of sequences, which parameters do not have
//! u32 0  i32 length  TensorDesc                 protobuf: 1 = type, 2 = dims
//! elements
//! ```
//!
//! The tensors are in the order of their names, which stand in the program beside them: `m.json` for `m.pdiparams`.

use super::program;
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
    let stem = key.strip_suffix(".pdiparams").unwrap_or(key);
    let program = format!("{stem}.json");
    if !store.list_files("")?.iter().any(|meta| meta.key == program) {
        return Err(Error::Unsupported {
            file: key.to_string(),
            reason: format!("the names of its tensors are in `{program}`, which is not there"),
            hint: "keep the program beside its parameters; an older `.pdmodel` can be saved again with Paddle 3",
        });
    }
    let parameters = program::parameters(store, &program)?;
    let reader = store.reader(key)?;
    let mut input = Input::new(reader.as_ref(), 0..reader.len());
    let mut model = Model {
        format: "paddle",
        files: vec![DataFile::plain(key, reader.len())],
        ..Model::default()
    };
    for (name, shape) in parameters {
        let tensor = tensor(key, &mut input)?;
        if tensor.shape != shape {
            let found = &tensor.shape;
            let reason = format!("`{name}` has shape {found:?}, in `{program}` it is {shape:?}");
            return Err(Error::damaged(key, reason));
        }
        model.tensors.insert(name, tensor);
    }
    match input.remaining() {
        0 => Ok(model),
        rest => Err(Error::damaged(
            key,
            format!("{rest} bytes are left after the last tensor that `{program}` names"),
        )),
    }
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
    let (dtype, shape) = described(key, &description)?;
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

/// Type and shape from a protobuf of varints: field 1 is the type, each field 2 a dim (or all dims, packed).
fn described(key: &str, mut bytes: &[u8]) -> Result<(DType, Vec<usize>), Error> {
    let broken = || Error::damaged(key, "a description is not as Paddle writes it");
    let (mut dtype, mut shape) = (None, Vec::new());
    while !bytes.is_empty() {
        match varint(&mut bytes).ok_or_else(broken)? {
            0x08 => dtype = Some(element_type(key, varint(&mut bytes).ok_or_else(broken)?)?),
            0x10 => shape.push(dim(&mut bytes).ok_or_else(broken)?),
            0x12 => {
                let len = varint(&mut bytes).and_then(|len| usize::try_from(len).ok());
                let (mut packed, rest) = len
                    .and_then(|len| bytes.split_at_checked(len))
                    .ok_or_else(broken)?;
                bytes = rest;
                while !packed.is_empty() {
                    shape.push(dim(&mut packed).ok_or_else(broken)?);
                }
            }
            _ => return Err(broken()),
        }
    }
    Ok((dtype.ok_or_else(broken)?, shape))
}

fn dim(bytes: &mut &[u8]) -> Option<usize> {
    varint(bytes).and_then(|dim| usize::try_from(i64::try_from(dim).ok()?).ok())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn element_type(key: &str, code: u64) -> Result<DType, Error> {
    Ok(match code {
        0 => DType::Bool,
        1 => DType::I16,
        2 => DType::I32,
        3 => DType::I64,
        4 => DType::F16,
        5 => DType::F32,
        6 => DType::F64,
        20 => DType::U8,
        21 => DType::I8,
        22 => DType::Bf16,
        23 => DType::C64,
        32 => DType::F8E4M3,
        33 => DType::F8E5M2,
        36 => DType::U16,
        37 => DType::U32,
        38 => DType::U64,
        _ => {
            return Err(Error::Unsupported {
                file: key.to_string(),
                reason: format!("it has a tensor of Paddle's type {code}"),
                hint: "cast that tensor and save the program again",
            });
        }
    })
}
