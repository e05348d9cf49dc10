//! The parameters that a saved program declares: `m.json` (PIR) or, before Paddle 3, `m.pdmodel` (protobuf).
//!
//! Newer versions of Paddle patch operators of older programs while they load them. Parameters are declared the same in all
//! versions so far, so that nothing is patched here, and a version that is not known is refused.

use super::dtypes;
use super::protobuf::{Field, bytes, fields, number, tensor};
use crate::Error;
use cairn_tensor::DType;
use serde_json::Value;
use std::collections::BTreeMap;

/// The newest version of programs that is known.
pub const MAX_VERSION: u64 = 4;

/// The operation that declares a parameter.
const PARAMETER: &str = "p";
/// The kind of a variable that is a tensor, in protobuf.
const DENSE_TENSOR: u64 = 7;

/// What a program says of one of its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Element type; `None` if it is one that has no name here.
    pub dtype: Option<DType>,
    /// Shape.
    pub shape: Vec<usize>,
}

/// The parameters of the program `bytes` in the file `key`, by name. Files of parameters have them in this order.
///
/// # Errors
/// If it is no program, or one of a newer version.
pub fn parameters(key: &str, bytes: &[u8]) -> Result<BTreeMap<String, Parameter>, Error> {
    if key.ends_with(".pdmodel") {
        let found = of_protobuf(bytes);
        return found.ok_or_else(|| Error::damaged(key, "it is not a Paddle program"));
    }
    let program: Value = serde_json::from_slice(bytes)
        .map_err(|error| Error::damaged(key, format!("it is not JSON: {error}")))?;
    let base = &program["base_code"];
    if base["magic"] != "pir" {
        return Err(Error::damaged(key, "it is not a Paddle program"));
    }
    if base["version"]
        .as_u64()
        .is_none_or(|version| version > MAX_VERSION)
    {
        return Err(Error::Unsupported {
            file: key.to_string(),
            reason: format!(
                "its version is {}, the newest that is known is {MAX_VERSION}",
                base["version"]
            ),
            hint: "use a newer cairn, or save the program with an older Paddle",
        });
    }
    let mut found = BTreeMap::new();
    for region in list(&program["program"]["regions"]) {
        for block in list(&region["blocks"]) {
            for operation in list(&block["ops"]) {
                if operation["#"] == PARAMETER {
                    let (name, declared) = parameter(operation)
                        .ok_or_else(|| Error::damaged(key, "a parameter has no name or shape"))?;
                    found.insert(name, declared);
                }
            }
        }
    }
    Ok(found)
}

/// Whether `bytes` are a program, as far as their beginning tells.
pub fn is_program(key: &str, bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(64)];
    key.ends_with(".pdmodel")
        || key.ends_with(".json") && start.windows(11).any(|word| word == b"\"base_code\"")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `{"A": [.., .., .., name], "O": {"TT": {"D": [type, shape, …]}}}`
fn parameter(operation: &Value) -> Option<(String, Parameter)> {
    let name = operation["A"].get(3)?.as_str()?;
    let described = &operation["O"]["TT"]["D"];
    let dims = described.get(1)?.as_array()?;
    let size = |dim: &Value| usize::try_from(dim.as_u64()?).ok();
    let shape: Option<Vec<usize>> = dims.iter().map(size).collect();
    let dtype = described.get(0)?["#"].as_str().and_then(dtypes::of_program);
    let declared = Parameter {
        dtype,
        shape: shape?,
    };
    Some((name.to_string(), declared))
}

/// `ProgramDesc { blocks = 1 { vars = 3 { name = 1, type = 2, persistable = 3 } } }`
fn of_protobuf(program: &[u8]) -> Option<BTreeMap<String, Parameter>> {
    let mut found = BTreeMap::new();
    let program = fields(program)?;
    let first_block = bytes(&program, 1)?;
    for (field, variable) in fields(first_block)? {
        let (3, Field::Bytes(variable)) = (field, variable) else {
            continue;
        };
        let variable = fields(variable)?;
        let kind = fields(bytes(&variable, 2)?)?;
        if number(&variable, 3) != Some(1) || number(&kind, 1) != Some(DENSE_TENSOR) {
            continue;
        }
        let name = std::str::from_utf8(bytes(&variable, 1)?).ok()?;
        let (code, shape) = tensor(bytes(&fields(bytes(&kind, 3)?)?, 1)?)?;
        let dtype = dtypes::of_code(code);
        found.insert(name.to_string(), Parameter { dtype, shape });
    }
    Some(found)
}
