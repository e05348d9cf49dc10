//! What is saved: names with tensor pieces in memory, and plain values.

mod outline;

use crate::Error;
use crate::bytes::{Bytes, Condition, Watch};
use cairn_sharding::TensorSpec;
use cairn_tensor::{DType, Strided};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use outline::Aliases;
pub use outline::Outline;

/// The longest name of a tensor or value, in bytes.
pub const MAX_NAME_BYTES: usize = 4096;

/// The most lists and objects of a plain value in each other: readers of JSON stop at 128, and some of them are the document's.
const MAX_LEVELS: usize = 100;

/// The name of the value that holds a step's metrics, by name.
pub const METRICS: &str = "$metrics";

/// The state of one rank, borrowed for the time of a save.
///
/// Tensors are given with the formula that says which part of them this rank holds, and the memory of that part. Values are
/// plain JSON: the step, a scheduler, a sampler's position. A value given by [`State::rank_value`] is this rank's own, such as
/// the state of its random-number generator.
#[derive(Debug, Clone)]
pub struct State<'a> {
    pub(crate) outline: Arc<Outline>,
    /// The memory of each tensor of the outline.
    pub(crate) memory: Vec<Bytes<'a>>,
    pub(crate) values: BTreeMap<String, Value>,
    pub(crate) rank_values: BTreeMap<String, Value>,
    pub(crate) watch: Option<Watch>,
    pub(crate) condition: Option<Condition>,
}

impl<'a> State<'a> {
    /// The empty state of `rank`.
    pub fn new(rank: usize) -> Self {
        Self {
            outline: Arc::new(Outline::new(rank)),
            memory: Vec::new(),
            values: BTreeMap::new(),
            rank_values: BTreeMap::new(),
            watch: None,
            condition: None,
        }
    }

    /// The rank whose state this is.
    pub fn rank(&self) -> usize {
        self.outline.rank()
    }

    /// What the state consists of, to make the state of the next step from: saving that one needs no new plan.
    pub fn outline(&self) -> Arc<Outline> {
        self.outline.clone()
    }

    /// Adds a tensor whose local part lies row-major in `bytes`. A tensor that lives on other ranks only is passed over.
    ///
    /// # Errors
    /// If the name is taken or unusable, or the length is not what the formula says.
    pub fn tensor(&mut self, name: &str, spec: &TensorSpec, bytes: &'a [u8]) -> Result<(), Error> {
        self.add(name, spec, bytes.into(), None)
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
        self.add(name, spec, bytes.into(), Some(strides.to_vec()))
    }

    /// Adds a tensor whose local part lies row-major in `bytes`, which may be on a device or stay as they are beyond the call of `save`.
    ///
    /// # Errors
    /// As [`State::tensor`].
    pub fn bytes(&mut self, name: &str, spec: &TensorSpec, bytes: Bytes<'a>) -> Result<(), Error> {
        self.add(name, spec, bytes, None)
    }

    /// Adds a tensor that is not stored, because it is the tensor `of`, added before, cast to `dtype`: a weight beside its `f32`
    /// master. Whoever loads it gets the cast, so it must be exact: [`hold`](crate::hold) checks that.
    ///
    /// # Errors
    /// As [`Outline::derive`].
    pub fn derive(&mut self, name: &str, dtype: DType, of: &str) -> Result<(), Error> {
        let outline = Arc::make_mut(&mut self.outline);
        outline.derive(name, dtype, of).map(|_| ())
    }

    /// Has `watch` asked, before the step is committed, whether memory that is fenced was changed too early.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Has `condition` asked before this writer says that its part is whole. A writer without bytes of its own does not ask.
    pub fn condition(&mut self, condition: Condition) {
        self.condition = Some(condition);
    }

    /// Adds a plain value that all ranks share; writer 0's is the one that is kept.
    pub fn value(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_string(), value);
    }

    /// Adds a metric, such as a loss, that all ranks share: retention can keep the best steps by it.
    pub fn metric(&mut self, name: &str, value: f64) {
        let metrics = self.values.entry(METRICS.into());
        let metrics = metrics.or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metrics) = metrics {
            // What is no number has no place in JSON, and is never the best.
            let plain = match value.is_finite() {
                true => json!(value),
                false => json!({"$float": value.to_string().to_lowercase()}),
            };
            metrics.insert(name.to_string(), plain);
        }
    }

    /// Adds a plain value of this rank alone.
    pub fn rank_value(&mut self, name: &str, value: Value) {
        self.rank_values.insert(name.to_string(), value);
    }

    /// The bytes of all tensors this rank holds.
    pub fn len_bytes(&self) -> u64 {
        self.outline
            .tensors
            .iter()
            .filter_map(|held| local_bytes(&held.spec, self.rank()))
            .map(|len| len as u64)
            .sum()
    }

    fn add(
        &mut self,
        name: &str,
        spec: &TensorSpec,
        bytes: Bytes<'a>,
        strides: Option<Vec<usize>>,
    ) -> Result<(), Error> {
        let outline = Arc::make_mut(&mut self.outline);
        if outline.describe(name, spec, bytes.len(), strides)? {
            self.memory.push(bytes);
        }
        Ok(())
    }

    /// Which tensors are only another name of another.
    pub(crate) fn aliases(&self) -> Aliases {
        self.outline.aliases(&self.memory)
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

impl State<'_> {
    /// Refuses values that no reader would take.
    pub(crate) fn check_values(&self) -> Result<(), Error> {
        let values = self.values.iter().chain(&self.rank_values);
        for (name, value) in values {
            if is_deeper(value, MAX_LEVELS) {
                let reason = format!("is nested more than {MAX_LEVELS} levels deep");
                return Err(wrong(name, &reason));
            }
        }
        Ok(())
    }
}

/// Whether there are more than so many lists and objects in each other.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let below = |item: &Value| is_deeper(item, levels - 1);
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(below),
        Value::Object(members) => levels == 0 || members.values().any(below),
        _ => false,
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

/// Checks that `len` bytes with these strides are the local part of `spec` on `rank`, and returns how many it takes.
pub(crate) fn check_memory(
    name: &str,
    spec: &TensorSpec,
    rank: usize,
    len: usize,
    strides: Option<&[usize]>,
) -> Result<usize, Error> {
    let held = spec.local_shape(rank);
    let shape = held.clone().unwrap_or_default();
    let elements = match strides {
        _ if held.is_none() => Some(0),
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
    let fits = |wanted: &usize| match strides {
        None => *wanted == len,
        Some(_) => *wanted <= len,
    };
    if let Some(wanted) = wanted.filter(fits) {
        return Ok(wanted);
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
