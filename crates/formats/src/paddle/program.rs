//! The parameters that a saved program (PIR, as JSON) names.

use crate::Error;
use cairn_store::Store;
use serde_json::Value;
use std::collections::BTreeMap;

/// The operation that declares a parameter.
const PARAMETER: &str = "p";

/// Name → shape of every parameter of the program `key`.
pub(super) fn parameters(
    store: &dyn Store,
    key: &str,
) -> Result<BTreeMap<String, Vec<usize>>, Error> {
    let bytes = store.get(key)?;
    let program: Value = serde_json::from_slice(&bytes)
        .map_err(|error| Error::damaged(key, format!("it is not JSON: {error}")))?;
    if program["base_code"]["magic"] != "pir" {
        return Err(Error::damaged(key, "it is not a Paddle program"));
    }
    let mut found = BTreeMap::new();
    for region in list(&program["program"]["regions"]) {
        for block in list(&region["blocks"]) {
            for operation in list(&block["ops"]) {
                if operation["#"] == PARAMETER {
                    let (name, shape) = parameter(operation)
                        .ok_or_else(|| Error::damaged(key, "a parameter has no name or shape"))?;
                    found.insert(name, shape);
                }
            }
        }
    }
    Ok(found)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `{"A": [.., .., .., name], "O": {"TT": {"D": [type, shape, …]}}}`
fn parameter(operation: &Value) -> Option<(String, Vec<usize>)> {
    let name = operation["A"].get(3)?.as_str()?;
    let dims = operation["O"]["TT"]["D"].get(1)?.as_array()?;
    let size = |dim: &Value| usize::try_from(dim.as_u64()?).ok();
    let shape: Option<Vec<usize>> = dims.iter().map(size).collect();
    Some((name.to_string(), shape?))
}
