//! What a rank's state consists of, without its memory: described once, saved many times.

use super::{State, check_memory, check_name, wrong};
use crate::Error;
use crate::bytes::Bytes;
use crate::derived::{DERIVED_DTYPES, DERIVED_FROM, Derived};
use crate::layout::{Layout, own_spec};
use cairn_sharding::TensorSpec;
use cairn_tensor::DType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A tensor of a rank's state, without its memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Described {
    pub(crate) spec: TensorSpec,
    pub(crate) strides: Option<Vec<usize>>,
    /// The bytes of its memory; with strides, the fewest it can have.
    len_bytes: usize,
}

/// The names, placements and strides of a rank's tensors: what stays the same from save to save.
///
/// The state of the next step is made from it and the memory of that step, and saving it needs no new plan:
///
/// ```
/// # use cairn_checkpoint::State;
/// # use cairn_sharding::{Mesh, TensorSpec};
/// # let spec = TensorSpec::parse(&Mesh::single(), "u8[4]")?;
/// let mut state = State::new(0);
/// state.tensor("weights", &spec, &[1, 2, 3, 4])?;
/// state.tensor("momentum", &spec, &[0, 0, 0, 0])?;
/// let outline = state.outline();
///
/// let next = outline.state([&[5; 4][..], &[1; 4][..]])?;    // in the order in which they were added
/// assert_eq!(next.len_bytes(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outline {
    rank: usize,
    pub(crate) tensors: Vec<Described>,
    by_name: BTreeMap<String, usize>,
    derived: BTreeMap<String, Derived>,
}

/// Names of tensors that lie in the memory of another: pairs of indices, the alias first.
pub(crate) type Aliases = Vec<(usize, usize)>;

impl Outline {
    /// The outline of an empty state of `rank`.
    pub fn new(rank: usize) -> Self {
        Self {
            rank,
            ..Self::default()
        }
    }

    /// The rank whose state this describes.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The state with these tensors in `memory`, one for each in the order in which they were added.
    ///
    /// A tensor that was passed over, because it lives on other ranks only, has no memory here either.
    ///
    /// # Errors
    /// If there are more or fewer slices than tensors, or one does not have the length its tensor takes.
    pub fn state<'a, B: Into<Bytes<'a>>>(
        self: &Arc<Self>,
        memory: impl IntoIterator<Item = B>,
    ) -> Result<State<'a>, Error> {
        let memory: Vec<Bytes> = memory.into_iter().map(B::into).collect();
        if memory.len() != self.len() {
            let reason = format!(
                "has {} tensors, but memory for {}",
                self.len(),
                memory.len()
            );
            return Err(wrong(&format!("the state of rank {}", self.rank), &reason));
        }
        let misfit =
            self.tensors
                .iter()
                .zip(&memory)
                .position(|(held, bytes)| match &held.strides {
                    None => bytes.len() != held.len_bytes,
                    Some(_) => bytes.len() < held.len_bytes,
                });
        if let Some(index) = misfit {
            let held = &self.tensors[index];
            let strides = held.strides.as_deref();
            let name = self.name(index);
            check_memory(name, &held.spec, self.rank, memory[index].len(), strides)?;
        }
        Ok(State {
            outline: self.clone(),
            memory,
            values: BTreeMap::new(),
            rank_values: BTreeMap::new(),
            watch: None,
            condition: None,
        })
    }

    /// Adds a tensor whose local part has `len_bytes` bytes of memory, and `strides` (in elements) if it is not row-major. Returns
    /// whether it has a part here: a tensor that lives on other ranks only is passed over.
    ///
    /// # Errors
    /// If the name is taken or unusable, or the memory is not what the formula says.
    pub fn describe(
        &mut self,
        name: &str,
        spec: &TensorSpec,
        len_bytes: usize,
        strides: Option<Vec<usize>>,
    ) -> Result<bool, Error> {
        check_name(name)?;
        if spec.sharding().is_none() && spec.shape().contains(&0) {
            // No list has a piece of it, so it would vanish.
            let reason = "is empty and listed: give it a place on a mesh";
            return Err(wrong(name, reason));
        }
        if !spec.holds(self.rank) {
            return Ok(false);
        }
        let len_bytes = check_memory(name, spec, self.rank, len_bytes, strides.as_deref())?;
        if self.by_name.contains_key(name) || self.derived.contains_key(name) {
            return Err(wrong(name, "is given twice"));
        }
        self.by_name.insert(name.to_string(), self.tensors.len());
        self.tensors.push(Described {
            spec: spec.clone(),
            strides,
            len_bytes,
        });
        Ok(true)
    }

    /// Adds a tensor that is not stored, because it is `of` cast to `dtype`. Returns whether it has a part here, as `of` has.
    ///
    /// # Errors
    /// If the name is taken or unusable, or `of` is not of type [`DERIVED_FROM`](crate::DERIVED_FROM), or `dtype` is none of
    /// [`DERIVED_DTYPES`](crate::DERIVED_DTYPES).
    pub fn derive(&mut self, name: &str, dtype: DType, of: &str) -> Result<bool, Error> {
        check_name(name)?;
        let Some(index) = self.find(of) else {
            return Ok(false);
        };
        let from = self.tensors[index].spec.dtype();
        if from != DERIVED_FROM || !DERIVED_DTYPES.contains(&dtype) {
            let reason = format!("cannot be the {dtype} of `{of}`, which is {from}");
            return Err(wrong(name, &reason));
        }
        let of = of.to_string();
        let other = self.derived.insert(name.into(), Derived { of, dtype });
        if other.is_some() || self.by_name.contains_key(name) {
            return Err(wrong(name, "is given twice"));
        }
        Ok(true)
    }

    /// The index of the tensor called `name`.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Which tensors are only another name of one that comes before them, in order of names.
    pub(super) fn aliases(&self, memory: &[Bytes]) -> Aliases {
        let place = |(position, index): (usize, &usize)| {
            let bytes = &memory[*index];
            // Devices and the host share one space of addresses.
            (bytes.address(), bytes.len(), position, *index)
        };
        let mut places: Vec<_> = self.by_name.values().enumerate().map(place).collect();
        places.retain(|(_, len, _, _)| *len > 0);
        places.sort_unstable();
        let mut aliases = Vec::new();
        for same in places.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let mut originals: Vec<usize> = Vec::new();
            for (_, _, _, index) in same {
                let is_same = |other: &&usize| self.tensors[**other] == self.tensors[*index];
                match originals.iter().find(is_same) {
                    Some(original) => aliases.push((*index, *original)),
                    None => originals.push(*index),
                }
            }
        }
        aliases.sort_unstable();
        aliases
    }

    /// The tensors to store, and the other names that some of them have.
    pub(crate) fn layout(&self, aliases: &Aliases) -> Layout {
        let originals: BTreeMap<usize, usize> = aliases.iter().copied().collect();
        let names: BTreeMap<usize, &str> = match originals.is_empty() {
            true => BTreeMap::new(),
            false => self
                .by_name
                .iter()
                .map(|(name, index)| (*index, name.as_str()))
                .collect(),
        };
        let mut tensors = BTreeMap::new();
        let mut others = BTreeMap::new();
        for (name, index) in &self.by_name {
            match originals.get(index) {
                Some(original) => {
                    others.insert(name.clone(), names[original].to_string());
                }
                None => {
                    let spec = own_spec(&self.tensors[*index].spec, self.rank);
                    tensors.insert(name.clone(), spec);
                }
            }
        }
        let mut derived = self.derived.clone();
        for derived in derived.values_mut() {
            if let Some(original) = others.get(&derived.of) {
                derived.of.clone_from(original);
            }
        }
        Layout::new(tensors, others).with_derived(derived)
    }

    /// The name of a tensor.
    pub(crate) fn name(&self, index: usize) -> &str {
        let named = self.by_name.iter().find(|(_, named)| **named == index);
        named.map_or("", |(name, _)| name)
    }
}
