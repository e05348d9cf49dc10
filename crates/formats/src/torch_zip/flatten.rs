//! From the nested object of an archive to named tensors and values.

use super::directory::Archive;
use super::rebuild::{Located, Rebuilt, rebuilt};
use crate::model::{Encoding, Model, PieceAt, Tensor};
use crate::pickle::{MAX_DEPTH, Node, Pickle, Value};
use crate::{Error, plain};
use cairn_sharding::{Piece, Region};
use std::collections::{BTreeMap, HashMap};

/// The most nodes a walk visits: sharing can make a small pickle endless.
const MAX_VISITS: usize = 1 << 22;

/// What a tensor or value is called that was saved by itself.
const ROOT: &str = "value";

/// What an archive contains, by name.
pub(crate) struct Flattened<'a> {
    archive: &'a Archive<'a>,
    file: usize,
    tensors: BTreeMap<String, Tensor>,
    aliases: BTreeMap<String, String>,
    values: BTreeMap<String, serde_json::Value>,
    /// Where each tensor lies → the first name it had.
    seen: HashMap<Located, String>,
    /// Whether tensors are somewhere below a container.
    has_tensors: HashMap<u32, bool>,
    visits: usize,
}

impl<'a> Flattened<'a> {
    /// Names everything in `pickle`; `file` is the number of the archive among the files of its model.
    pub(crate) fn new(
        archive: &'a Archive<'a>,
        pickle: &Pickle,
        file: usize,
    ) -> Result<Self, Error> {
        let mut flattened = Self {
            archive,
            file,
            tensors: BTreeMap::new(),
            aliases: BTreeMap::new(),
            values: BTreeMap::new(),
            seen: HashMap::new(),
            has_tensors: HashMap::new(),
            visits: 0,
        };
        flattened.walk(ROOT, pickle.root(), 0)?;
        Ok(flattened)
    }

    /// Adds everything to a model, in which no name may be taken.
    pub(crate) fn add_to(self, file: &str, model: &mut Model) -> Result<(), Error> {
        let names = self.tensors.keys().chain(self.aliases.keys());
        for name in names.chain(self.values.keys()) {
            if model.find(name).is_some() || model.values.contains_key(name) {
                let reason = format!("`{name}` is also in another file");
                return Err(Error::damaged(file, reason));
            }
        }
        model.tensors.extend(self.tensors);
        model.aliases.extend(self.aliases);
        model.values.extend(self.values);
        Ok(())
    }

    fn walk(&mut self, name: &str, node: Node, depth: usize) -> Result<(), Error> {
        self.visit(depth)?;
        if let Some(tensor) = rebuilt(self.archive.file, node, 0)? {
            return self.tensor(name, tensor);
        }
        // At the top every key is a name of its own, with tensors below it or not.
        let open = depth == 0 || self.has_tensors(node, depth)?;
        let children = if open { children(node) } else { None };
        let Some(children) = children else {
            let value = plain::from_pickle(self.archive.file, self.archive.reader, node)?;
            return self.insert_value(name, value);
        };
        for (key, child) in children {
            let key = key.ok_or_else(|| {
                self.unsupported("tensors lie under a key that is no string or number".into())
            })?;
            let name = if depth == 0 {
                key
            } else {
                format!("{name}.{key}")
            };
            self.walk(&name, child, depth + 1)?;
        }
        Ok(())
    }

    fn tensor(&mut self, name: &str, tensor: Rebuilt) -> Result<(), Error> {
        let located = tensor.located(self.archive)?;
        self.check_free(name)?;
        if !located.shape.contains(&0) {
            if let Some(first) = self.seen.get(&located) {
                self.aliases.insert(name.to_string(), first.clone());
                return Ok(());
            }
            self.seen.insert(located.clone(), name.to_string());
        }
        let tensor = located.into_tensor(self.file);
        self.tensors.insert(name.to_string(), tensor);
        Ok(())
    }

    fn insert_value(&mut self, name: &str, value: serde_json::Value) -> Result<(), Error> {
        self.check_free(name)?;
        self.values.insert(name.to_string(), value);
        Ok(())
    }

    fn check_free(&self, name: &str) -> Result<(), Error> {
        let taken = self.tensors.contains_key(name)
            || self.aliases.contains_key(name)
            || self.values.contains_key(name);
        match taken {
            false => Ok(()),
            true => Err(self.unsupported(format!(
                "two things in it are called `{name}` once nested names are joined"
            ))),
        }
    }

    /// Whether a tensor is somewhere inside `node`.
    fn has_tensors(&mut self, node: Node, depth: usize) -> Result<bool, Error> {
        if let Some(known) = self.has_tensors.get(&node.id()) {
            return Ok(*known);
        }
        self.visit(depth)?;
        let mut found = rebuilt(self.archive.file, node, 0)?.is_some();
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
        if depth > MAX_DEPTH || self.visits > MAX_VISITS {
            let reason =
                format!("it is nested deeper than {MAX_DEPTH}, or has over {MAX_VISITS} parts");
            return Err(self.unsupported(reason));
        }
        Ok(())
    }

    fn unsupported(&self, reason: String) -> Error {
        Error::Unsupported {
            file: self.archive.file.to_string(),
            reason,
            hint: "save a dict of tensors and plain values, with other names",
        }
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
    let dict = match (node.value(), node.class()) {
        (Value::Dict(_), _) => node,
        (_, Some("collections.OrderedDict" | "collections.defaultdict")) => node,
        (_, Some("argparse.Namespace" | "types.SimpleNamespace")) => node.state()?,
        _ => return None,
    };
    Some(
        dict.pairs()?
            .map(|(key, value)| (part(key), value))
            .collect(),
    )
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

impl Located {
    fn into_tensor(self, file: usize) -> Tensor {
        let piece = PieceAt {
            file,
            offset: self.offset,
            piece: Piece::whole(Region::whole(&self.shape)),
            encoding: self.strides.map_or(Encoding::RowMajor, Encoding::Strided),
        };
        Tensor {
            dtype: self.dtype,
            shape: self.shape,
            pieces: vec![piece],
        }
    }
}
