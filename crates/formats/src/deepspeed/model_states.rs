//! What a step says about its parameters, and what of the model it keeps whole.

use super::saved::{self, Saved};
use super::stream::{Run, Stream, tensor};
use crate::model::{Model, Tensor};
use crate::pickle::Node;
use crate::{Error, tree};
use cairn_store::Store;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Entries that describe the file itself.
const DESCRIPTIONS: [&str; 6] = [
    "buffer_names",
    "frozen_param_fragments",
    "frozen_param_shapes",
    "module",
    "param_shapes",
    "shared_params",
];

/// The files with names and shapes, read.
#[derive(Default)]
pub(super) struct ModelStates {
    /// The first of the files.
    key: String,
    /// Names and shapes of trained parameters, by group.
    pub(super) shapes: Vec<Vec<(String, Vec<usize>)>>,
    frozen: Vec<(String, Vec<usize>)>,
    /// What each rank has of frozen parameters.
    fragments: Vec<HashMap<String, Run>>,
    /// A name, and the parameter it is another name of.
    shared: Vec<(String, String)>,
    /// The model as it was stored: whole or, where ranks share it, without elements.
    module: Vec<(String, Tensor)>,
    buffers: Vec<String>,
    others: Vec<(String, Tensor)>,
    values: BTreeMap<String, Value>,
}

impl ModelStates {
    /// Reads the files of all ranks; the first says what all of them would.
    pub(super) fn read(
        store: &dyn Store,
        files: &[String],
        model: &mut Model,
    ) -> Result<Self, Error> {
        let mut states = Self::default();
        for (index, key) in files.iter().enumerate() {
            saved::read(store, key, model, |saved| {
                if index == 0 {
                    states.key.clone_from(key);
                    states.describe(saved)?;
                    states.keep(saved)?;
                }
                states.fragments.push(fragments(saved)?);
                Ok(())
            })?;
        }
        Ok(states)
    }

    /// The shape of a trained parameter.
    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        let mut shapes = self.shapes.iter().flatten();
        shapes.find_map(|(known, shape)| (known == name).then_some(shape.as_slice()))
    }

    fn describe(&mut self, saved: &Saved) -> Result<(), Error> {
        let root = saved.pickle.root();
        for group in groups(root.get("param_shapes")) {
            self.shapes.push(saved.shapes(group)?);
        }
        if let Some(frozen) = root.get("frozen_param_shapes") {
            self.frozen = saved.shapes(frozen)?;
        }
        let shared = root.get("shared_params").and_then(Node::pairs);
        let text = |node: Node| node.as_str().map(str::to_string);
        let pair = |(name, of): (Node, Node)| Some((text(name)?, text(of)?));
        self.shared = shared.into_iter().flatten().filter_map(pair).collect();
        let buffers = root.get("buffer_names").and_then(Node::items);
        self.buffers = buffers.into_iter().flatten().filter_map(text).collect();
        Ok(())
    }

    /// Sorts tensors and values into those of the model and others.
    fn keep(&mut self, saved: &Saved) -> Result<(), Error> {
        let archive = &saved.archive;
        let tree = tree::flatten(archive.file, archive.reader, saved.pickle.root(), |node| {
            saved.tensor(node)
        })?;
        for (name, tensor) in tree.tensors {
            match name.split_once('.') {
                Some(("module", name)) => self.module.push((name.to_string(), tensor)),
                Some((entry, _)) if DESCRIPTIONS.contains(&entry) => {}
                _ => self.others.push((name, tensor)),
            }
        }
        self.values = tree.values;
        self.values.retain(|name, _| {
            let entry = name.split('.').next().unwrap_or_default();
            !DESCRIPTIONS.contains(&entry)
        });
        Ok(())
    }

    /// Leaves of the stored model its buffers only: everything else is somewhere else, and whole.
    pub(super) fn keep_buffers(&mut self) {
        let Self {
            module, buffers, ..
        } = self;
        module.retain(|(name, _)| buffers.contains(name));
    }

    /// Adds frozen parameters, other names, and what else the model has no better form of already.
    pub(super) fn place(self, model: &mut Model) -> Result<(), Error> {
        for (name, shape) in &self.frozen {
            if model.tensors.contains_key(name) {
                continue;
            }
            let stream = |of_rank: &HashMap<String, Run>| {
                let mut stream = Stream::default();
                let run = of_rank.get(name).copied();
                stream.push(run, run.map_or(0, |run| run.len));
                stream
            };
            let streams: Vec<Stream> = self.fragments.iter().map(stream).collect();
            let tensor = tensor(shape, 0, &streams).ok_or_else(|| {
                let reason =
                    format!("the fragments of the frozen parameter `{name}` do not make it up");
                Error::damaged(&self.key, reason)
            })?;
            model.tensors.insert(name.clone(), tensor);
        }
        for (name, of) in self.shared {
            if model.tensors.contains_key(&of) && name != of {
                model.tensors.remove(&name);
                model.aliases.insert(name, of);
            }
        }
        for (name, tensor) in self.module.into_iter().chain(self.others) {
            if model.find(&name).is_none() {
                model.tensors.insert(name, tensor);
            }
        }
        model.values.extend(self.values);
        Ok(())
    }
}

/// The dicts of a list of dicts, or the only one.
fn groups(node: Option<Node>) -> Vec<Node> {
    let items = node.and_then(Node::items);
    items.unwrap_or_else(|| node.into_iter().filter(|node| !node.is_none()).collect())
}

/// What a rank has of frozen parameters.
fn fragments(saved: &Saved) -> Result<HashMap<String, Run>, Error> {
    let mut found = HashMap::new();
    let dict = saved.pickle.root().get("frozen_param_fragments");
    for (name, fragment) in dict.and_then(Node::pairs).into_iter().flatten() {
        if let (Some(name), Some(run)) = (name.as_str(), saved.run(fragment)?) {
            found.insert(name.to_string(), run);
        }
    }
    Ok(found)
}
