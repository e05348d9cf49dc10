//! Nested structures from one rank to all, or from all to all.

use crate::{Communicator, Error};
use cairn_tensor::DType;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::str::FromStr;

/// A nested structure with tensors in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    /// A tensor, row-major.
    Tensor {
        /// Its element type.
        dtype: DType,
        /// Its shape.
        shape: Vec<usize>,
        /// Its elements.
        bytes: Vec<u8>,
    },
    /// Several, in order.
    List(Vec<Tree>),
    /// Several, by name.
    Map(BTreeMap<String, Tree>),
    /// Anything that JSON can say.
    Value(Value),
}

/// Gives all the structure that rank `root` has; the others give `None`.
///
/// # Collective
/// # Errors
/// If somebody does not call or calls something else, or rank `root` gives nothing.
pub fn broadcast_tree(
    group: &dyn Communicator,
    root: usize,
    tree: Option<&Tree>,
) -> Result<Tree, Error> {
    let mut data = Vec::new();
    let outline = tree.map(|tree| tree.outline(&mut data));
    let described: (Value, usize) = broadcast_value(
        group,
        root,
        outline.map(|outline| (outline, data.len())).as_ref(),
    )?;
    let (outline, len) = described;
    data.resize(len, 0);
    group.broadcast(root, &mut data)?;
    Tree::rebuild(&outline, &mut data.as_slice()).ok_or_else(|| Error::Value {
        reason: "its outline does not fit its data".into(),
    })
}

/// Gives all the plain value that rank `root` has; the others give `None`.
///
/// # Collective
/// # Errors
/// If somebody does not call or calls something else, or rank `root` gives nothing.
pub fn broadcast_value<T: Serialize + DeserializeOwned>(
    group: &dyn Communicator,
    root: usize,
    value: Option<&T>,
) -> Result<T, Error> {
    // What cannot be written becomes empty, which all see, so that nobody waits.
    let text = value.map(serde_json::to_vec).and_then(Result::ok);
    let mut text = text.unwrap_or_default();
    let mut len = (text.len() as u64).to_le_bytes();
    group.broadcast(root, &mut len)?;
    let len = usize::try_from(u64::from_le_bytes(len)).unwrap_or(0);
    text.resize(len, 0);
    group.broadcast(root, &mut text)?;
    serde_json::from_slice(&text).map_err(|error| Error::Value {
        reason: error.to_string(),
    })
}

/// Gives all the plain values of all, in the order of their ranks.
///
/// # Collective
/// # Errors
/// If somebody does not call or calls something else, or a value cannot be written.
pub fn gather_values<T: Serialize + DeserializeOwned>(
    group: &dyn Communicator,
    value: &T,
) -> Result<Vec<T>, Error> {
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut lens = vec![0; 8 * group.size()];
    let own = (text.len() as u64).to_le_bytes();
    group.all_gather(&own, &vec![8; group.size()], &mut lens)?;
    let lens: Vec<usize> = lens
        .as_chunks()
        .0
        .iter()
        .map(|len| usize::try_from(u64::from_le_bytes(*len)).unwrap_or(0))
        .collect();
    let mut all = vec![0; lens.iter().sum()];
    group.all_gather(&text, &lens, &mut all)?;
    let mut rest = all.as_slice();
    let mut values = Vec::with_capacity(lens.len());
    for len in lens {
        let (one, after) = rest.split_at(len);
        let value = serde_json::from_slice(one).map_err(|error| Error::Value {
            reason: error.to_string(),
        })?;
        values.push(value);
        rest = after;
    }
    Ok(values)
}

impl Tree {
    /// What it looks like without the elements of tensors, which go to the end of `data`.
    fn outline(&self, data: &mut Vec<u8>) -> Value {
        match self {
            Self::Tensor {
                dtype,
                shape,
                bytes,
            } => {
                data.extend_from_slice(bytes);
                json!({"tensor": dtype.to_string(), "shape": shape, "len": bytes.len()})
            }
            Self::List(items) => {
                let items: Vec<Value> = items.iter().map(|item| item.outline(data)).collect();
                json!({"list": items})
            }
            Self::Map(items) => {
                let items = items
                    .iter()
                    .map(|(name, item)| (name.clone(), item.outline(data)));
                json!({"map": items.collect::<serde_json::Map<_, _>>()})
            }
            Self::Value(value) => json!({"value": value}),
        }
    }

    /// The tree with this outline, which takes its tensors' elements from the front of `data`.
    fn rebuild(outline: &Value, data: &mut &[u8]) -> Option<Self> {
        if let Some(value) = outline.get("value") {
            return Some(Self::Value(value.clone()));
        }
        if let Some(items) = outline.get("list") {
            let items = items.as_array()?.iter();
            let items = items.map(|item| Self::rebuild(item, data));
            return items.collect::<Option<_>>().map(Self::List);
        }
        if let Some(items) = outline.get("map") {
            let items = items.as_object()?.iter();
            let items = items.map(|(name, item)| Some((name.clone(), Self::rebuild(item, data)?)));
            return items.collect::<Option<_>>().map(Self::Map);
        }
        let len = usize::try_from(outline.get("len")?.as_u64()?).ok()?;
        let (bytes, rest) = data.split_at_checked(len)?;
        *data = rest;
        let sizes = outline.get("shape")?.as_array()?.iter();
        let shape = sizes.map(|size| usize::try_from(size.as_u64()?).ok());
        Some(Self::Tensor {
            dtype: DType::from_str(outline.get("tensor")?.as_str()?).ok()?,
            shape: shape.collect::<Option<_>>()?,
            bytes: bytes.to_vec(),
        })
    }
}
