//! What is saved: names with tensor pieces in memory, and plain values.

use crate::Error;
use crate::layout::{Layout, own_spec};
use cairn_sharding::TensorSpec;
use cairn_tensor::Strided;
use serde_json::Value;
use std::collections::BTreeMap;

/// The longest name of a tensor or value, in bytes.
pub const MAX_NAME_BYTES: usize = 4096;

/// A rank's own memory of one tensor.
#[derive(Debug, Clone)]
pub(crate) struct Held<'a> {
    pub(crate) spec: TensorSpec,
    pub(crate) bytes: &'a [u8],
    pub(crate) strides: Option<Vec<usize>>,
}

/// The state of one rank, borrowed for the time of a save.
///
/// Tensors are given with the formula that says which part of them this rank holds, and the memory of that part. Values are
/// plain JSON: the step, a scheduler, a sampler's position. A value given by [`State::rank_value`] is this rank's own, such as
/// the state of its random-number generator.
#[derive(Debug, Clone)]
pub struct State<'a> {
    rank: usize,
    pub(crate) tensors: BTreeMap<String, Held<'a>>,
    pub(crate) values: BTreeMap<String, Value>,
    pub(crate) rank_values: BTreeMap<String, Value>,
}

impl<'a> State<'a> {
    /// The empty state of `rank`.
    pub fn new(rank: usize) -> Self {
        Self {
            rank,
            tensors: BTreeMap::new(),
            values: BTreeMap::new(),
            rank_values: BTreeMap::new(),
        }
    }

    /// The rank whose state this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Adds a tensor whose local part lies row-major in `bytes`. A tensor that lives on other ranks only is passed over.
    ///
    /// # Errors
    /// If the name is taken or unusable, or the length is not what the formula says.
    pub fn tensor(&mut self, name: &str, spec: &TensorSpec, bytes: &'a [u8]) -> Result<(), Error> {
        self.add(name, spec, bytes, None)
    }

    /// Adds a tensor whose local part has `strides` (in elements), for memory that is not contiguous.
    ///
    /// # Errors
    /// As [`State::tensor`], and if the strides reach beyond `bytes`.
    pub fn strided_tensor(
        &mut self,
        name: &str,
        spec: &TensorSpec,
        bytes: &'a [u8],
        strides: &[usize],
    ) -> Result<(), Error> {
        self.add(name, spec, bytes, Some(strides.to_vec()))
    }

    /// Adds a plain value that all ranks share; writer 0's is the one that is kept.
    pub fn value(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_string(), value);
    }

    /// Adds a plain value of this rank alone.
    pub fn rank_value(&mut self, name: &str, value: Value) {
        self.rank_values.insert(name.to_string(), value);
    }

    /// The bytes of all tensors this rank holds.
    pub fn len_bytes(&self) -> u64 {
        self.tensors
            .values()
            .filter_map(|held| local_bytes(&held.spec, self.rank))
            .map(|len| len as u64)
            .sum()
    }

    fn add(
        &mut self,
        name: &str,
        spec: &TensorSpec,
        bytes: &'a [u8],
        strides: Option<Vec<usize>>,
    ) -> Result<(), Error> {
        check_name(name)?;
        if spec.sharding().is_none() && spec.shape().contains(&0) {
            // No list has a piece of it, so it would vanish.
            return Err(wrong(
                name,
                "is empty and listed: give it a place on a mesh",
            ));
        }
        if !spec.holds(self.rank) {
            return Ok(());
        }
        check_memory(name, spec, self.rank, bytes.len(), strides.as_deref())?;
        let held = Held {
            spec: spec.clone(),
            bytes,
            strides,
        };
        match self.tensors.insert(name.to_string(), held) {
            None => Ok(()),
            Some(_) => Err(wrong(name, "is given twice")),
        }
    }

    /// Splits the tensors in those to store and the names that are only another name of one of them.
    pub(crate) fn layout(&self) -> Layout {
        let mut tensors = BTreeMap::new();
        let mut aliases = BTreeMap::new();
        let mut seen: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
        for (name, held) in &self.tensors {
            let place = (held.bytes.as_ptr().addr(), held.bytes.len());
            let same_place = seen.entry(place).or_default();
            let original = same_place
                .iter()
                .find(|other| !held.bytes.is_empty() && self.tensors[**other].is_same(held));
            if let Some(original) = original {
                aliases.insert(name.clone(), (*original).to_string());
            } else {
                same_place.push(name);
                tensors.insert(name.clone(), own_spec(&held.spec, self.rank));
            }
        }
        Layout::new(tensors, aliases)
    }
}

impl Held<'_> {
    fn is_same(&self, other: &Held) -> bool {
        self.spec == other.spec && self.strides == other.strides
    }
}

/// Where a box of the local part lies in memory with the given strides.
pub(crate) fn place(local: &Strided, local_shape: &[usize], strides: Option<&[usize]>) -> Strided {
    let Some(strides) = strides else {
        return local.clone();
    };
    if local_shape.len() == 1 && local.shape.len() != 1 {
        // Several dims of the tensor flattened to one in memory.
        let scaled = local.strides.iter().map(|stride| stride * strides[0]);
        return Strided {
            offset: local.offset * strides[0],
            shape: local.shape.clone(),
            strides: scaled.collect(),
        };
    }
    let mut rest = local.offset;
    let mut offset = 0;
    for (unit, stride) in cairn_tensor::row_major_strides(local_shape)
        .iter()
        .zip(strides)
    {
        if *unit > 0 {
            offset += rest / unit * stride;
            rest %= unit;
        }
    }
    Strided {
        offset,
        shape: local.shape.clone(),
        strides: strides.to_vec(),
    }
}

/// Refuses names that no file can hold.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(wrong("", "is not a name"));
    }
    if name.len() > MAX_NAME_BYTES {
        let reason = format!(
            "has {} bytes, over the limit of {MAX_NAME_BYTES}",
            name.len()
        );
        let short: String = name.chars().take(40).collect();
        return Err(wrong(&format!("{short}…"), &reason));
    }
    if name == cairn_formats::safetensors::METADATA_KEY {
        return Err(wrong(name, "is a name the file format keeps for itself"));
    }
    Ok(())
}

/// Checks that `len` bytes with these strides are the local part of `spec` on `rank`.
pub(crate) fn check_memory(
    name: &str,
    spec: &TensorSpec,
    rank: usize,
    len: usize,
    strides: Option<&[usize]>,
) -> Result<(), Error> {
    let shape = spec.local_shape(rank).unwrap_or_default();
    let elements = match strides {
        None => cairn_tensor::element_count(&shape),
        Some(strides) if strides.len() == shape.len() => Strided {
            offset: 0,
            shape: shape.clone(),
            strides: strides.to_vec(),
        }
        .end(),
        Some(strides) => {
            let reason = format!(
                "has {} strides for the local shape {shape:?}",
                strides.len()
            );
            return Err(wrong(name, &reason));
        }
    };
    let wanted = elements.and_then(|count| spec.dtype().len_bytes(count));
    let fits = match strides {
        None => wanted == Some(len),
        Some(_) => wanted.is_some_and(|wanted| wanted <= len),
    };
    if fits {
        return Ok(());
    }
    let reason = match wanted {
        Some(wanted) => format!(
            "has {len} bytes in memory, but rank {rank}'s part {shape:?} of `{spec}` takes {wanted}"
        ),
        None => format!(
            "has a local shape {shape:?} that does not fill whole bytes as {}",
            spec.dtype()
        ),
    };
    Err(wrong(name, &reason))
}

/// The bytes `rank` holds of a tensor.
pub(crate) fn local_bytes(spec: &TensorSpec, rank: usize) -> Option<usize> {
    spec.dtype().len_bytes(spec.local_element_count(rank))
}

fn wrong(name: &str, reason: &str) -> Error {
    Error::State {
        name: name.to_string(),
        reason: reason.to_string(),
    }
}
