//! From the nested object of a pickle to named tensors and values.
//!
//! Nested keys are joined with `.`. A branch without tensors is one value, except at the top, where every key is a name of
//! its own.

use crate::pickle::{MAX_DEPTH, Node, Value};
use crate::{Error, plain};
use cairn_store::ObjectReader;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most nodes a walk visits: sharing can make a small pickle endless.
const MAX_VISITS: usize = 1 << 22;

/// What a tensor or value is called that was saved by itself.
const ROOT: &str = "value";

/// Everything in a pickle, by name. No name occurs twice.
pub(crate) struct Tree<T> {
    /// In the order of the pickle; one tensor may come under several names.
    pub(crate) tensors: Vec<(String, T)>,
    pub(crate) values: BTreeMap<String, serde_json::Value>,
}

/// Names everything below `root`, which was read from `reader`, called `file` in errors; `tensor` knows tensors.
pub(crate) fn flatten<'p, T>(
    file: &str,
    reader: &dyn ObjectReader,
    root: Node<'p>,
    tensor: impl Fn(Node<'p>) -> Result<Option<T>, Error>,
) -> Result<Tree<T>, Error> {
    let mut walk = Walk {
        file,
        reader,
        tensor,
        tree: Tree {
            tensors: Vec::new(),
            values: BTreeMap::new(),
        },
        names: HashSet::new(),
        has_tensors: HashMap::new(),
        visits: 0,
    };
    walk.walk(ROOT, root, 0)?;
    Ok(walk.tree)
}

struct Walk<'a, T, F> {
    file: &'a str,
    reader: &'a dyn ObjectReader,
    tensor: F,
    tree: Tree<T>,
    names: HashSet<String>,
    /// Whether tensors are somewhere below a container.
    has_tensors: HashMap<u32, bool>,
    visits: usize,
}

impl<'p, T, F: Fn(Node<'p>) -> Result<Option<T>, Error>> Walk<'_, T, F> {
    fn walk(&mut self, name: &str, node: Node<'p>, depth: usize) -> Result<(), Error> {
        self.visit(depth)?;
        if let Some(tensor) = (self.tensor)(node)? {
            let name = self.claim(name)?;
            self.tree.tensors.push((name, tensor));
            return Ok(());
        }
        let open = depth == 0 || self.has_tensors(node, depth)?;
        let children = if open { children(node) } else { None };
        let Some(children) = children else {
            let name = self.claim(name)?;
            let value = plain::from_pickle(self.file, self.reader, node)?;
            self.tree.values.insert(name, value);
            return Ok(());
        };
        for (key, child) in children {
            let key = key.ok_or_else(|| {
                self.unsupported("tensors lie under a key that is no string or number".into())
            })?;
            let name = match depth {
                0 => key,
                _ => format!("{name}.{key}"),
            };
            self.walk(&name, child, depth + 1)?;
        }
        Ok(())
    }

    /// Takes a name that is still free.
    fn claim(&mut self, name: &str) -> Result<String, Error> {
        match self.names.insert(name.to_string()) {
            true => Ok(name.to_string()),
            false => Err(self.unsupported(format!(
                "two things in it are called `{name}` once nested names are joined"
            ))),
        }
    }

    /// Whether a tensor is somewhere inside `node`.
    fn has_tensors(&mut self, node: Node<'p>, depth: usize) -> Result<bool, Error> {
        if let Some(known) = self.has_tensors.get(&node.id()) {
            return Ok(*known);
        }
        self.visit(depth)?;
        let mut found = (self.tensor)(node)?.is_some();
        if !found {
            for (_, child) in children(node).into_iter().flatten() {
                found |= self.has_tensors(child, depth + 1)?;
            }
        }
        self.has_tensors.insert(node.id(), found);
        Ok(found)
    }

    fn visit(&mut self, depth: usize) -> Result<(), Error> {
        self.visits += 1;
        if depth <= MAX_DEPTH && self.visits <= MAX_VISITS {
            return Ok(());
        }
        Err(self.unsupported(format!(
            "it is nested deeper than {MAX_DEPTH}, or has over {MAX_VISITS} parts"
        )))
    }

    fn unsupported(&self, reason: String) -> Error {
        Error::Unsupported {
            file: self.file.to_string(),
            reason,
            hint: "save a dict of tensors and plain values, with other names",
        }
    }
}

type Named<'p> = (Option<String>, Node<'p>);

/// What a container holds, by the last part of its name; `None` if it is no container.
fn children(node: Node<'_>) -> Option<Vec<Named<'_>>> {
    if matches!(node.value(), Value::List(_) | Value::Tuple(_)) {
        let items = node.items()?.into_iter().enumerate();
        let named = items.map(|(index, item)| (Some(index.to_string()), item));
        return Some(named.collect());
    }
    let dict = match (node.value(), node.class()) {
        (Value::Dict(_), _) => node,
        (_, Some("collections.OrderedDict" | "collections.defaultdict")) => node,
        (_, Some("argparse.Namespace" | "types.SimpleNamespace")) => node.state()?,
        _ => return None,
    };
    let pairs = dict.pairs()?;
    Some(pairs.map(|(key, value)| (part(key), value)).collect())
}

/// A dict's key as part of a name.
fn part(key: Node) -> Option<String> {
    match key.value() {
        Value::Str(text) => Some(text.to_string()),
        Value::Int(number) => Some(number.to_string()),
        Value::Bool(value) => Some(if *value { "True" } else { "False" }.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Pickles built by hand; a string that begins with `tensor` stands for a tensor.

    use super::*;
    use crate::pickle::{Bytes, Writer, parse};
    use serde_json::json;

    fn flattened(build: impl FnOnce(&mut Writer)) -> Result<Tree<String>, Error> {
        let mut writer = Writer::new();
        build(&mut writer);
        let bytes = writer.finish();
        let pickle = parse("x", &bytes, &plain::policy())?;
        flatten("x", &Bytes(&bytes), pickle.root(), |node| {
            let text = node.as_str().filter(|text| text.starts_with("tensor"));
            Ok(text.map(str::to_string))
        })
    }

    fn pair(tensor: &str, name: &str) -> (String, String) {
        (name.to_string(), tensor.to_string())
    }

    #[test]
    fn a_tensor_saved_by_itself_has_a_name() {
        let tree = flattened(|pickle| pickle.str("tensor")).unwrap();
        assert_eq!(tree.tensors, [pair("tensor", "value")]);
        let tree = flattened(|pickle| pickle.int(3)).unwrap();
        assert_eq!(tree.values["value"], json!(3));
    }

    #[test]
    fn branches_with_tensors_open_and_others_are_one_value() {
        let tree = flattened(|pickle| {
            pickle.open_dict();
            pickle.str("a");
            pickle.open_list();
            pickle.open_list();
            pickle.str("tensor 0");
            pickle.list();
            pickle.int(5);
            pickle.list();
            pickle.str("b");
            pickle.open_list();
            pickle.open_list();
            pickle.int(1);
            pickle.list();
            pickle.list();
            pickle.dict();
        })
        .unwrap();
        assert_eq!(tree.tensors, [pair("tensor 0", "a.0.0")]);
        let values: Vec<_> = tree.values.into_iter().collect();
        assert_eq!(
            values,
            [("a.1".into(), json!(5)), ("b".into(), json!([[1]]))]
        );
    }

    #[test]
    fn names_that_meet_once_joined_are_refused() {
        let error = flattened(|pickle| {
            pickle.open_dict();
            pickle.str("a.b");
            pickle.int(1);
            pickle.str("a");
            pickle.open_dict();
            pickle.str("b");
            pickle.str("tensor");
            pickle.dict();
            pickle.dict();
        });
        let error = error.err().unwrap().to_string();
        assert!(
            error.contains("two things in it are called `a.b`"),
            "{error}"
        );
    }

    #[test]
    fn a_tensor_under_a_key_that_is_no_name_is_refused() {
        let error = flattened(|pickle| {
            pickle.open_dict();
            pickle.none();
            pickle.str("tensor");
            pickle.dict();
        });
        let error = error.err().unwrap().to_string();
        assert!(error.contains("no string or number"), "{error}");
    }
}
