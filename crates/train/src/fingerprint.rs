//! Whether data is what a run began with.

use serde_json::Value;
use std::collections::BTreeMap;

/// What differs between what data was and what it is, each in a few words; nothing if all is the same.
pub(crate) fn changes(before: &Value, now: &Value) -> Vec<String> {
    let (before, now) = (leaves(before), leaves(now));
    let mut paths: Vec<&String> = before.keys().chain(now.keys()).collect();
    paths.sort();
    paths.dedup();
    let differs = paths
        .into_iter()
        .filter(|path| before.get(*path) != now.get(*path));
    let told = differs.map(|path| match (before.get(path), now.get(path)) {
        (Some(before), Some(now)) => format!("`{path}` was {before} and is {now}"),
        (Some(before), None) => format!("`{path}` was {before} and is gone"),
        (None, now) => format!("`{path}` is new: {}", now.unwrap_or(&Value::Null)),
    });
    told.collect()
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
        assert_eq!(
            changes(&before, &now),
            [
                "`cut` is new: \"masked\"",
                "`sources.0.tokens` was 5 and is 6",
                "`sources.1.name` was \"b\" and is gone",
            ]
        );
        assert!(changes(&before, &before).is_empty());
    }
}
