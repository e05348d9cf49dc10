//! The pickled metadata: which tensors there are, and which file holds each piece.

use crate::Error;
use crate::pickle::{self, Node, Policy};
use crate::torch_zip::sizes;
use cairn_sharding::{Piece, Region};
use cairn_store::Store;
use cairn_tensor::{DType, element_count};
use std::collections::{BTreeMap, HashMap};

const BUILT: &[&str] = &[
    // Paddle before 3.2.
    "paddle.distributed.checkpoint.metadata.LocalTensorIndex",
    "paddle.distributed.checkpoint.metadata.LocalTensorMetadata",
    "paddle.distributed.checkpoint.metadata.Metadata",
    "paddle.distributed.flex_checkpoint.dcp.metadata.LocalTensorIndex",
    "paddle.distributed.flex_checkpoint.dcp.metadata.LocalTensorMetadata",
    "paddle.distributed.flex_checkpoint.dcp.metadata.Metadata",
];

/// What a metadata file says.
pub(super) struct Metadata {
    pub(super) tensors: BTreeMap<String, Described>,
}

/// A tensor, its pieces, and the file of each.
pub(super) struct Described {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) pieces: Vec<(Piece, String)>,
}

/// Where a piece begins, and its flat range: what pieces and files are matched by.
type Place = (Vec<usize>, Option<(usize, usize)>);

impl Metadata {
    /// Reads and checks the metadata file `key`.
    pub(super) fn read(store: &dyn Store, key: &str) -> Result<Self, Error> {
        let reader = store.reader(key)?;
        let policy = Policy::new()
            .build(BUILT)
            .call(&["collections.OrderedDict"]);
        let pickle = pickle::read(key, reader.as_ref(), 0..reader.len(), &policy)?;
        parse(key, pickle.root())
    }

    /// The data files it names.
    pub(super) fn files(&self) -> impl Iterator<Item = &String> {
        let pieces = self.tensors.values().flat_map(|tensor| &tensor.pieces);
        pieces.map(|(_, file)| file)
    }
}

fn parse(key: &str, root: Node) -> Result<Metadata, Error> {
    let broken = |what: &str| Error::damaged(key, format!("{what} is not as Paddle writes it"));
    let state = root.state().ok_or_else(|| broken("the metadata"))?;
    let described = state.get("state_dict_metadata").and_then(Node::pairs);
    let described = described.ok_or_else(|| broken("`state_dict_metadata`"))?;
    let files = files(state).ok_or_else(|| broken("`storage_metadata`"))?;
    let mut tensors = BTreeMap::new();
    for (name, pieces) in described {
        let name = name.as_str().ok_or_else(|| broken("a name"))?;
        let pieces = pieces.items().unwrap_or_default();
        let tensor = tensor(name, &pieces, &files).map_err(|reason| match reason {
            Reason::Broken => broken(&format!("the entry of `{name}`")),
            Reason::Says(reason) => Error::damaged(key, reason),
            Reason::Type(dtype) => Error::Unsupported {
                file: key.to_string(),
                reason: format!("`{name}` has the type `{dtype}`"),
                hint: "cast that tensor and save again, or load it with paddle",
            },
        })?;
        tensors.insert(name.to_string(), tensor);
    }
    Ok(Metadata { tensors })
}

/// Why the entry of a tensor cannot be used.
enum Reason {
    Broken,
    Says(String),
    Type(String),
}

fn tensor(
    name: &str,
    pieces: &[Node],
    files: &HashMap<&str, HashMap<Place, &str>>,
) -> Result<Described, Reason> {
    let first = pieces.first().and_then(|piece| piece.state());
    let element = first.and_then(|state| state.get("dtype")?.as_str());
    let element = element.ok_or(Reason::Broken)?;
    let dtype = element_type(element).ok_or_else(|| Reason::Type(element.to_string()))?;
    let mut boxes = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let state = piece.state().ok_or(Reason::Broken)?;
        let place = place(state).ok_or(Reason::Broken)?;
        let extent = state.get("local_shape").and_then(sizes);
        boxes.push((place, extent.ok_or(Reason::Broken)?));
    }
    let stated = first.and_then(|state| sizes(state.get("global_shape")?));
    let shape = match stated {
        Some(shape) => shape,
        None => around(&boxes).ok_or(Reason::Broken)?,
    };
    let mut placed = Vec::with_capacity(boxes.len());
    for (place, extent) in boxes {
        let file = files.get(name).and_then(|files| files.get(&place));
        let file = file.ok_or_else(|| {
            Reason::Says(format!(
                "it does not say where `{name}` at {:?} lies",
                place.0
            ))
        })?;
        let piece = piece(place, extent, &shape)
            .ok_or_else(|| Reason::Says(format!("a piece of `{name}` is not inside {shape:?}")))?;
        placed.push((piece, (*file).to_string()));
    }
    Ok(Described {
        dtype,
        shape,
        pieces: placed,
    })
}

fn piece((offset, flat): Place, extent: Vec<usize>, shape: &[usize]) -> Option<Piece> {
    let inside = offset.len() == shape.len()
        && extent.len() == shape.len()
        && (offset.iter().zip(&extent).zip(shape))
            .all(|((start, len), size)| start.checked_add(*len).is_some_and(|end| end <= *size));
    let count = element_count(&extent)?;
    let flat = flat.map(|(start, end)| start..end);
    let ordered = flat
        .as_ref()
        .is_none_or(|range| range.start <= range.end && range.end <= count);
    (inside && ordered).then_some(Piece {
        region: Region { offset, extent },
        flat,
    })
}

/// The smallest shape that holds all boxes: older metadata does not state it.
fn around(boxes: &[(Place, Vec<usize>)]) -> Option<Vec<usize>> {
    let mut shape = Vec::new();
    for ((offset, _), extent) in boxes {
        shape.resize(offset.len(), 0);
        for ((size, start), len) in shape.iter_mut().zip(offset).zip(extent) {
            *size = start.checked_add(*len)?.max(*size);
        }
    }
    Some(shape)
}

/// Name → place of a piece → file. Of replicas one is enough.
fn files(state: Node<'_>) -> Option<HashMap<&str, HashMap<Place, &str>>> {
    let mut files: HashMap<&str, HashMap<Place, &str>> = HashMap::new();
    for (index, file) in state.get("storage_metadata")?.pairs()? {
        let index = index.state()?;
        let name = index.get("tensor_key")?.as_str()?;
        let known = files.entry(name).or_default();
        known.entry(place(index)?).or_insert(file.as_str()?);
    }
    Some(files)
}

fn place(state: Node) -> Option<Place> {
    let flat = match state.get("flattened_range") {
        Some(range) if !range.is_none() => match sizes(range)?.as_slice() {
            [start, end] => Some((*start, *end)),
            _ => return None,
        },
        _ => None,
    };
    Some((sizes(state.get("global_offset")?)?, flat))
}

fn element_type(name: &str) -> Option<DType> {
    Some(match name.strip_prefix("paddle.").unwrap_or(name) {
        "bool" => DType::Bool,
        "uint8" => DType::U8,
        "int8" => DType::I8,
        "int16" => DType::I16,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "float16" => DType::F16,
        "bfloat16" => DType::Bf16,
        "float32" => DType::F32,
        "float64" => DType::F64,
        "complex64" => DType::C64,
        "float8_e4m3fn" => DType::F8E4M3,
        "float8_e5m2" => DType::F8E5M2,
        _ => return None,
    })
}
