//! What differs between two values, leaf by leaf: whether a run is what it was.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A plain value that is not what it was.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// The keys that lead to it, with dots.
    pub(crate) path: String,
    pub(crate) before: Option<Value>,
    pub(crate) now: Option<Value>,
}

impl Change {
    /// The same in a table of this name.
    pub(crate) fn under(mut self, table: &str) -> Self {
        self.path = format!("{table}.{}", self.path);
        self
    }
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |value: &Option<Value>| match value {
            None | Some(Value::Null) => "not set".to_string(),
            Some(value) => value.to_string(),
        };
        write!(
            out,
            "`{}` was {}, is {}",
            self.path,
            told(&self.before),
            told(&self.now)
        )
    }
}

/// What differs between what something was and what it is; nothing if all is the same.
pub(crate) fn changes(before: &Value, now: &Value) -> Vec<Change> {
    let (before, now) = (leaves(before), leaves(now));
    let paths: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let change = |path: &String| Change {
        path: path.clone(),
        before: before.get(path).cloned(),
        now: now.get(path).cloned(),
    };
    let found = paths.into_iter().map(change);
    let found = found.filter(|found| found.before != found.now);
    let is_set = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    found
        .filter(|found| is_set(&found.before) || is_set(&found.now))
        .collect()
}

/// All plain values in a value, by the keys that lead to them.
fn leaves(value: &Value) -> BTreeMap<String, Value> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(list) => {
            let numbered = list.iter().enumerate();
            numbered
                .map(|(at, value)| (at.to_string(), value))
                .collect()
        }
        plain => return [(String::new(), plain.clone())].into(),
    };
    let mut all = BTreeMap::new();
    for (key, value) in inner {
        for (rest, leaf) in leaves(value) {
            let path = match rest.is_empty() {
                true => key.clone(),
                false => format!("{key}.{rest}"),
            };
            all.insert(path, leaf);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_difference_is_told_with_its_place() {
        let before = json!({"length": 8, "sources": [{"name": "a", "tokens": 5}, {"name": "b"}]});
        let now = json!({"length": 8, "sources": [{"name": "a", "tokens": 6}], "cut": "masked"});
        let told: Vec<String> = changes(&before, &now)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "`cut` was not set, is \"masked\"",
                "`sources.0.tokens` was 5, is 6",
                "`sources.1.name` was \"b\", is not set",
            ]
        );
        assert!(changes(&before, &before).is_empty());
    }
}
