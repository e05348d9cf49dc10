//! The pickled metadata: which tensors and values there are, and where every chunk lies.

use crate::Error;
use crate::pickle::{self, Node, Policy};
use crate::torch_zip::{dtype, sizes};
use cairn_store::Store;
use cairn_tensor::DType;
use std::collections::{BTreeMap, HashMap};

const BUILT: &[&str] = &[
    "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    // Megatron keeps the plans of the save, to skip planning the next time. They are passed over.
    "megatron.core.dist_checkpointing.strategies.torch.MCoreSavePlan",
    "torch.distributed.checkpoint.planner.*",
];

const CALLED: &[&str] = &[
    "collections.OrderedDict",
    "pathlib.PosixPath",
    "torch.Size",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.planner.WriteItemType",
    "torch.serialization._get_layout",
];

/// What a `.metadata` file says.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) tensors: BTreeMap<String, Tensor>,
    pub(super) values: BTreeMap<String, Item>,
}

/// A tensor and its stored chunks.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) chunks: Vec<Chunk>,
}

/// A box of a tensor and the item that holds it.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) offset: Vec<usize>,
    pub(super) extent: Vec<usize>,
    pub(super) item: Item,
}

/// Bytes of a data file.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) file: String,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Name and offset of a chunk → its bytes; values have no offset.
type Stored<'a> = HashMap<(&'a str, Option<Vec<usize>>), Item>;

impl Metadata {
    /// Reads and checks the metadata file `key`.
    pub(super) fn read(store: &dyn Store, key: &str) -> Result<Self, Error> {
        let policy = Policy::new()
            .build(BUILT)
            .call(CALLED)
            .mention(&["torch.*"]);
        let reader = store.reader(key)?;
        let pickle = pickle::read(key, reader.as_ref(), 0..reader.len(), &policy)?;
        parse(pickle.root()).map_err(|reason| match reason {
            Reason::Unsupported(reason) => Error::Unsupported {
                file: key.to_string(),
                reason,
                hint: "save it again without that, or load it with torch",
            },
            Reason::Broken(reason) => Error::damaged(key, reason),
        })
    }

    /// Every stored item.
    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        let chunks = self.tensors.values().flat_map(|tensor| &tensor.chunks);
        self.values.values().chain(chunks.map(|chunk| &chunk.item))
    }

    /// Adds what another rank says in the file `key`.
    pub(super) fn merge(&mut self, key: &str, other: Metadata) -> Result<(), Error> {
        for (name, tensor) in other.tensors {
            match self.tensors.get_mut(&name) {
                Some(known) if known.shape == tensor.shape && known.dtype == tensor.dtype => {
                    known.chunks.extend(tensor.chunks);
                }
                Some(_) => {
                    let reason = format!("it disagrees with other ranks about `{name}`");
                    return Err(Error::damaged(key, reason));
                }
                None => {
                    self.tensors.insert(name, tensor);
                }
            }
        }
        for (name, item) in other.values {
            self.values.entry(name).or_insert(item);
        }
        Ok(())
    }
}

/// Why metadata cannot be used.
enum Reason {
    Unsupported(String),
    Broken(String),
}

impl Reason {
    fn broken(what: &str) -> Self {
        Reason::Broken(format!("{what} is not as torch writes it"))
    }
}

fn parse(root: Node) -> Result<Metadata, Reason> {
    let state = root.state().ok_or_else(|| Reason::broken("the metadata"))?;
    let described = state.get("state_dict_metadata").and_then(Node::pairs);
    let described = described.ok_or_else(|| Reason::broken("`state_dict_metadata`"))?;
    let mut stored = stored(state)?;
    let mut metadata = Metadata {
        tensors: BTreeMap::new(),
        values: BTreeMap::new(),
    };
    for (name, entry) in described {
        let name = name.as_str().ok_or_else(|| Reason::broken("a name"))?;
        let class = entry.class().unwrap_or_default();
        if class.ends_with(".BytesStorageMetadata") {
            let item = take(&mut stored, name, None)?;
            metadata.values.insert(name.to_string(), item);
        } else {
            let tensor = tensor(name, entry, &mut stored)?;
            metadata.tensors.insert(name.to_string(), tensor);
        }
    }
    Ok(metadata)
}

fn tensor<'a>(name: &'a str, entry: Node, stored: &mut Stored<'a>) -> Result<Tensor, Reason> {
    let broken = || Reason::Broken(format!("the entry of `{name}` is not as torch writes it"));
    let state = entry.state().ok_or_else(broken)?;
    let properties = state.get("properties").and_then(Node::state);
    // Newer versions have a tuple here, some old ones a dict.
    let element = properties.and_then(|state| match state.items() {
        Some(items) => items.first().copied(),
        None => state.get("dtype"),
    });
    let element = element.and_then(Node::as_global).ok_or_else(broken)?;
    let dtype = dtype(element)
        .filter(|dtype| *dtype != DType::F4)
        .ok_or_else(|| Reason::Unsupported(format!("`{name}` has the type `{element}`")))?;
    let shape = state.get("size").and_then(sizes).ok_or_else(broken)?;
    let listed = state
        .get("chunks")
        .and_then(Node::items)
        .ok_or_else(broken)?;
    let mut chunks = Vec::with_capacity(listed.len());
    for chunk in listed {
        let state = chunk.state().ok_or_else(broken)?;
        let offset = state.get("offsets").and_then(sizes).ok_or_else(broken)?;
        let extent = state.get("sizes").and_then(sizes).ok_or_else(broken)?;
        if !fits(&offset, &extent, &shape) {
            return Err(Reason::Broken(format!(
                "a chunk of `{name}` at {offset:?} of size {extent:?} is not inside {shape:?}"
            )));
        }
        let item = take(stored, name, Some(offset.clone()))?;
        chunks.push(Chunk {
            offset,
            extent,
            item,
        });
    }
    Ok(Tensor {
        dtype,
        shape,
        chunks,
    })
}

fn fits(offset: &[usize], extent: &[usize], shape: &[usize]) -> bool {
    offset.len() == shape.len()
        && extent.len() == shape.len()
        && offset
            .iter()
            .zip(extent)
            .zip(shape)
            .all(|((start, len), size)| start.checked_add(*len).is_some_and(|end| end <= *size))
}

fn take<'a>(
    stored: &mut Stored<'a>,
    name: &'a str,
    offset: Option<Vec<usize>>,
) -> Result<Item, Reason> {
    let what = match &offset {
        Some(offset) => format!("the chunk of `{name}` at {offset:?}"),
        None => format!("`{name}`"),
    };
    let item = stored.remove(&(name, offset));
    item.ok_or_else(|| Reason::Broken(format!("it does not say where {what} lies")))
}

fn stored(state: Node<'_>) -> Result<Stored<'_>, Reason> {
    let pairs = state.get("storage_data").and_then(Node::pairs);
    let pairs = pairs.ok_or_else(|| Reason::broken("`storage_data`"))?;
    let mut stored = Stored::new();
    for (index, info) in pairs {
        let broken = || Reason::broken("an entry of `storage_data`");
        let index = index.state().ok_or_else(broken)?;
        let name = index.get("fqn").and_then(Node::as_str).ok_or_else(broken)?;
        let offset = match index.get("offset") {
            Some(offset) if !offset.is_none() => Some(sizes(offset).ok_or_else(broken)?),
            _ => None,
        };
        let info = info.state().ok_or_else(broken)?;
        if let Some(transforms) = info.get("transform_descriptors").and_then(Node::items) {
            let names: Vec<&str> = transforms.iter().filter_map(|name| name.as_str()).collect();
            if !names.is_empty() {
                let names = names.join(", ");
                return Err(Reason::Unsupported(format!(
                    "`{name}` was transformed by the extension `{names}`"
                )));
            }
        }
        stored.insert((name, offset), item(info).ok_or_else(broken)?);
    }
    Ok(stored)
}

fn item(info: Node) -> Option<Item> {
    Some(Item {
        file: info.get("relative_path")?.as_str()?.to_string(),
        offset: u64::try_from(info.get("offset")?.as_int()?).ok()?,
        len: u64::try_from(info.get("length")?.as_int()?).ok()?,
    })
}
