//! From the nested object of a pickle to named arrays and values.

use super::array::{Array, array, is_array, unsupported};
use crate::pickle::{MAX_DEPTH, Node, Value};
use crate::{Error, plain};
use cairn_store::ObjectReader;
use std::collections::{BTreeMap, HashMap};

/// The most nodes a walk visits: sharing can make a small pickle endless.
const MAX_VISITS: usize = 1 << 22;

/// What an array or value is called that was saved by itself.
const ROOT: &str = "value";

/// Everything in a pickle, by name.
pub(super) struct Walk<'a> {
    file: &'a str,
    reader: &'a dyn ObjectReader,
    pub(super) arrays: BTreeMap<String, Array>,
    /// Other names of arrays.
    pub(super) aliases: BTreeMap<String, String>,
    pub(super) values: BTreeMap<String, serde_json::Value>,
    /// An array's number in the pickle → the first name it had.
    seen: HashMap<u32, String>,
    /// Whether arrays are somewhere below a container.
    has_arrays: HashMap<u32, bool>,
    visits: usize,
}

impl<'a> Walk<'a> {
    /// Names everything below `root`, the content of `file`: nested keys are joined with `.`.
    pub(super) fn new(
        file: &'a str,
        reader: &'a dyn ObjectReader,
        root: Node,
    ) -> Result<Self, Error> {
        let mut walk = Self {
            file,
            reader,
            arrays: BTreeMap::new(),
            aliases: BTreeMap::new(),
            values: BTreeMap::new(),
            seen: HashMap::new(),
            has_arrays: HashMap::new(),
            visits: 0,
        };
        walk.walk(ROOT, root, 0)?;
        Ok(walk)
    }

    fn walk(&mut self, name: &str, node: Node, depth: usize) -> Result<(), Error> {
        self.visit(depth)?;
        if is_array(node) {
            return self.array(name, node);
        }
        // At the top every key is a name of its own, with arrays below it or not.
        let open = depth == 0 || self.has_arrays(node, depth)?;
        let children = if open { children(node) } else { None };
        let Some(children) = children else {
            self.check_free(name)?;
            let value = plain::from_pickle(self.file, self.reader, node)?;
            self.values.insert(name.to_string(), value);
            return Ok(());
        };
        for (key, child) in children {
            let key = key.ok_or_else(|| {
                unsupported(
                    self.file,
                    "arrays lie under a key that is no string or number".into(),
                )
            })?;
            let name = match depth {
                0 => key,
                _ => format!("{name}.{key}"),
            };
            self.walk(&name, child, depth + 1)?;
        }
        Ok(())
    }

    fn array(&mut self, name: &str, node: Node) -> Result<(), Error> {
        self.check_free(name)?;
        if let Some(first) = self.seen.get(&node.id()) {
            self.aliases.insert(name.to_string(), first.clone());
            return Ok(());
        }
        self.seen.insert(node.id(), name.to_string());
        let array = array(self.file, node)?;
        self.arrays.insert(name.to_string(), array);
        Ok(())
    }

    fn check_free(&self, name: &str) -> Result<(), Error> {
        let taken = self.arrays.contains_key(name)
            || self.aliases.contains_key(name)
            || self.values.contains_key(name);
        match taken {
            false => Ok(()),
            true => Err(unsupported(
                self.file,
                format!("two things in it are called `{name}` once nested names are joined"),
            )),
        }
    }

    fn has_arrays(&mut self, node: Node, depth: usize) -> Result<bool, Error> {
        if let Some(known) = self.has_arrays.get(&node.id()) {
            return Ok(*known);
        }
        self.visit(depth)?;
        let mut found = is_array(node);
        if !found {
            for (_, child) in children(node).into_iter().flatten() {
                found |= self.has_arrays(child, depth + 1)?;
            }
        }
        self.has_arrays.insert(node.id(), found);
        Ok(found)
    }

    fn visit(&mut self, depth: usize) -> Result<(), Error> {
        self.visits += 1;
        if depth <= MAX_DEPTH && self.visits <= MAX_VISITS {
            return Ok(());
        }
        let reason =
            format!("it is nested deeper than {MAX_DEPTH}, or has over {MAX_VISITS} parts");
        Err(unsupported(self.file, reason))
    }
}

type Named<'a> = (Option<String>, Node<'a>);

/// What a container holds, by the last part of its name; `None` if it is no container.
fn children<'a>(node: Node<'a>) -> Option<Vec<Named<'a>>> {
    if matches!(node.value(), Value::List(_) | Value::Tuple(_)) {
        let items = node.items()?.into_iter().enumerate();
        return Some(
            items
                .map(|(index, item)| (Some(index.to_string()), item))
                .collect(),
        );
    }
    let dict = matches!(node.value(), Value::Dict(_))
        || matches!(
            node.class(),
            Some("collections.OrderedDict" | "collections.defaultdict")
        );
    if !dict {
        return None;
    }
    let part = |key: Node| match key.value() {
        Value::Str(text) => Some(text.to_string()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    };
    let pairs = node.pairs()?;
    Some(pairs.map(|(key, value)| (part(key), value)).collect())
}
