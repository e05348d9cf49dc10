//! Where a model lies, and the adapter that is added to it.

use super::node::{Node, Value};
use super::problem::Problem;
use std::fmt;

/// A model, by its path, and perhaps a LoRA adapter to add to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelReference {
    /// The model's folder, file or run.
    pub path: String,
    /// The adapter's folder.
    pub lora: Option<String>,
}

impl ModelReference {
    /// Reads `path` or `path+adapter`.
    ///
    /// # Errors
    /// If there are two adapters, or a part is empty; in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split('+').map(str::to_string);
        let path = parts.next().unwrap_or_default();
        let lora = parts.next();
        if parts.next().is_some() {
            return Err(format!("`{text}` names more than one adapter"));
        }
        if path.is_empty() || lora.as_deref() == Some("") {
            return Err(format!("`{text}` is not `path` or `path+adapter`"));
        }
        Ok(Self { path, lora })
    }

    /// Reads a path, or a map with `model` and `lora`.
    pub(super) fn read(node: &Node) -> Result<Self, Problem> {
        let fail = |reason: String| Problem::new(node.line, reason);
        match &node.value {
            Value::Text(text) => Self::parse(text).map_err(fail),
            Value::Number(number) => Self::parse(&number.to_string()).map_err(fail),
            Value::Map(_) => {
                let part = |key: &str| node.get(key).and_then(path_of);
                let path = part("model").ok_or_else(|| fail("this names no `model`".into()))?;
                let lora = part("lora");
                Ok(Self { path, lora })
            }
            _ => Err(fail(format!("a model is a path, not {}", node.kind()))),
        }
    }
}

/// `path`, or `{path: …}`.
fn path_of(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) => Some(text.clone()),
        Value::Map(_) => node.get("path").and_then(path_of),
        _ => None,
    }
}

impl fmt::Display for ModelReference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.lora {
            Some(lora) => write!(f, "{}+{lora}", self.path),
            None => f.write_str(&self.path),
        }
    }
}
