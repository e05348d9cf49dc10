//! From the calls that rebuild a tensor to the bytes it lies in.

use super::directory::Archive;
use super::ends::Ends;
use super::{dtypes, policy};
use crate::Error;
use crate::pickle::Node;
use cairn_store::ObjectReader;
use cairn_tensor::{DType, Strided, element_count};
use std::ops::Range;

/// The functions that rebuild tensors.
pub(super) const CALLED: &[&str] = &[
    "torch._tensor._rebuild_from_type_v2",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
];

/// The types of tensors with attributes.
pub(super) const MENTIONED: &[&str] = &[
    "torch.Tensor",
    "torch.nn.parameter.Buffer",
    "torch.nn.parameter.Parameter",
];

/// A tensor as its pickle describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rebuilt<'a> {
    pub(super) dtype: DType,
    /// The key of the storage.
    pub(super) storage: &'a str,
    /// In elements of the storage.
    pub(super) place: Strided,
}

/// Where the elements of a tensor in an archive lie.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Located {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// First byte in the file.
    pub offset: u64,
    /// How far apart neighbours along each dim are, in elements; `None` for row-major.
    pub strides: Option<Vec<usize>>,
}

/// Finds the one tensor in the archive that fills the bytes `range` of a file.
///
/// # Errors
/// If the bytes are no such archive, or the tensor lies outside of them.
pub fn locate(file: &str, reader: &dyn ObjectReader, range: Range<u64>) -> Result<Located, Error> {
    let ends = Ends::read(reader, &range)?;
    let archive = Archive::read(file, &ends, range)?;
    let pickle = archive.pickle(&policy())?;
    match rebuilt(file, pickle.root(), 0)? {
        Some(tensor) => tensor.located(&archive),
        None => Err(Error::damaged(file, "an archive in it holds no tensor")),
    }
}

/// The tensor a node stands for; `None` if it is something else.
pub(crate) fn rebuilt<'a>(
    file: &str,
    node: Node<'a>,
    depth: usize,
) -> Result<Option<Rebuilt<'a>>, Error> {
    let Some(function) = node.class().filter(|class| CALLED.contains(class)) else {
        return Ok(None);
    };
    let args = node.args();
    let found = match (
        function.rsplit('.').next().unwrap_or_default(),
        args.as_slice(),
    ) {
        ("_rebuild_parameter" | "_rebuild_parameter_with_state", [data, ..]) if depth < 4 => {
            return rebuilt(file, *data, depth + 1);
        }
        ("_rebuild_from_type_v2", [function, _, args, ..]) => {
            let args = args.items().unwrap_or_default();
            from_call(function.as_global().unwrap_or_default(), &args)
        }
        _ => from_call(function, &args),
    };
    match found {
        Ok(tensor) => Ok(Some(tensor)),
        Err(reason) => Err(Error::Unsupported {
            file: file.to_string(),
            reason,
            hint: "save it as an ordinary dense tensor",
        }),
    }
}

/// A tensor from `(storage, offset, size, stride, requires_grad, hooks[, dtype][, metadata])`.
fn from_call<'a>(function: &str, args: &[Node<'a>]) -> Result<Rebuilt<'a>, String> {
    let [storage, offset, size, stride, ..] = args else {
        return Err(format!("`{function}` has too few arguments"));
    };
    let (dtype_at, metadata_at) = match function {
        "torch._utils._rebuild_tensor" | "torch._utils._rebuild_tensor_v2" => (None, 6),
        "torch._utils._rebuild_tensor_v3" => (Some(6), 7),
        _ => return Err(format!("tensors made by `{function}` are not read")),
    };
    if let Some(metadata) = args.get(metadata_at).and_then(|data| data.pairs())
        && metadata.count() > 0
    {
        return Err("a tensor in it is a conjugated or negated view".into());
    }
    let (storage_type, key) = storage_key(*storage)
        .ok_or_else(|| format!("`{function}` names no storage as torch does"))?;
    let name = match dtype_at {
        Some(at) => args.get(at).and_then(|dtype| dtype.as_global()),
        None => Some(storage_type),
    };
    let name = name.ok_or_else(|| format!("`{function}` names no element type"))?;
    let dtype = dtypes::dtype(name).or_else(|| dtypes::of_storage(name));
    let dtype = dtype.ok_or_else(|| format!("a tensor in it has the type `{name}`"))?;
    let place = place(*offset, *size, *stride)
        .ok_or_else(|| format!("`{function}` has sizes that are no sizes"))?;
    Ok(Rebuilt {
        dtype,
        storage: key,
        place: if dtype == DType::F4 {
            pairs(place)?
        } else {
            place
        },
    })
}

/// The type and key of a storage: `("storage", type, key, device, elements)`.
fn storage_key(node: Node<'_>) -> Option<(&str, &str)> {
    let parts = node.persistent()?.items()?;
    match parts.as_slice() {
        [tag, storage_type, key, ..] if tag.as_str() == Some("storage") => {
            Some((storage_type.as_global()?, key.as_str()?))
        }
        _ => None,
    }
}

fn place(offset: Node, size: Node, stride: Node) -> Option<Strided> {
    let place = Strided {
        offset: offset.as_usize()?,
        shape: sizes(size)?,
        strides: sizes(stride)?,
    };
    (place.shape.len() == place.strides.len()).then_some(place)
}

/// Numbers of a tuple, list or `torch.Size`.
pub(crate) fn sizes(node: Node) -> Option<Vec<usize>> {
    let items = match node.class() {
        Some("torch.Size") => node.args().first()?.items()?,
        _ => node.items()?,
    };
    items.into_iter().map(Node::as_usize).collect()
}

/// Torch counts pairs of four-bit elements; counted one by one the last dim has twice as many.
fn pairs(place: Strided) -> Result<Strided, String> {
    let twice = |count: usize| count.checked_mul(2);
    let mut shape = place.shape.clone();
    let doubled = shape.last_mut().and_then(|last| {
        *last = twice(*last)?;
        twice(place.offset)
    });
    match doubled {
        Some(offset) if place.is_contiguous() => Ok(Strided {
            offset,
            ..Strided::contiguous(&shape)
        }),
        _ => Err("a tensor in it has four-bit elements that do not lie side by side".into()),
    }
}

/// The most bytes of a tensor that has more elements than are stored, such as one that was made by `expand`: 1 GiB.
const MAX_EXPANDED_BYTES: u64 = 1 << 30;

impl Rebuilt<'_> {
    /// Finds the bytes, and checks that the storage has them.
    pub(crate) fn located(self, archive: &Archive) -> Result<Located, Error> {
        let name = format!("data/{}", self.storage);
        let entry = archive.entry(&name).ok_or_else(|| {
            Error::damaged(archive.file, format!("its zip has no entry `{name}`"))
        })?;
        let bits = self.dtype.bits();
        let end = self.place.end().and_then(|end| end.checked_mul(bits));
        let start = self.place.offset.checked_mul(bits);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(Error::damaged(archive.file, "a tensor in it has no size"));
        };
        if end.div_ceil(8) as u64 > entry.len {
            let reason = format!(
                "a tensor needs {} bytes of `{name}`, which has {}",
                end.div_ceil(8),
                entry.len
            );
            return Err(Error::damaged(archive.file, reason));
        }
        let whole = element_count(&self.place.shape).and_then(|count| count.checked_mul(bits));
        let whole = whole.map(|bits| bits.div_ceil(8) as u64);
        if whole.is_none_or(|whole| whole > entry.len.max(MAX_EXPANDED_BYTES)) {
            return Err(Error::Unsupported {
                file: archive.file.to_string(),
                reason: format!(
                    "a tensor of shape {:?} repeats the {} bytes of `{name}`",
                    self.place.shape, entry.len
                ),
                hint: "save it as it is before `expand`, or only what of it you need",
            });
        }
        let row_major = self.place.is_contiguous();
        Ok(Located {
            dtype: self.dtype,
            offset: archive
                .data(entry)?
                .start
                .saturating_add((start / 8) as u64),
            strides: (!row_major).then_some(self.place.strides),
            shape: self.place.shape,
        })
    }
}
