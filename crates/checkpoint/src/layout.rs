//! Which tensors there are and how each is spread over ranks: the formula a checkpoint stores instead of a list of chunks.

mod json;

use crate::Error;
use crate::checksum::hash64;
use crate::derived::Derived;
use cairn_sharding::{Distribution, Listed, Piece, Sharding, TensorSpec};
use std::collections::BTreeMap;

/// Names → tensors, in order of names; the names that stand for another tensor; the tensors that follow from another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layout {
    names: Vec<String>,
    specs: Vec<TensorSpec>,
    aliases: BTreeMap<String, String>,
    derived: BTreeMap<String, Derived>,
}

impl Layout {
    /// Builds a layout; `aliases` maps a name to the tensor it is another name of.
    pub fn new(tensors: BTreeMap<String, TensorSpec>, aliases: BTreeMap<String, String>) -> Self {
        let (names, specs) = tensors.into_iter().unzip();
        Self {
            names,
            specs,
            aliases,
            derived: BTreeMap::new(),
        }
    }

    /// The layout with tensors that are not stored, because they follow from stored ones.
    pub fn with_derived(mut self, derived: BTreeMap<String, Derived>) -> Self {
        self.derived = derived;
        self
    }

    /// The number of tensors, aliases not counted.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Names and tensors in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorSpec)> {
        self.names.iter().map(String::as_str).zip(&self.specs)
    }

    /// The tensor with this index.
    pub fn spec(&self, index: usize) -> &TensorSpec {
        &self.specs[index]
    }

    /// The name with this index.
    pub fn name(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// The index of the tensor called `name`, directly or by an alias.
    pub fn find(&self, name: &str) -> Option<usize> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        self.names.binary_search_by(|n| n.as_str().cmp(name)).ok()
    }

    /// Other names of tensors.
    pub fn aliases(&self) -> &BTreeMap<String, String> {
        &self.aliases
    }

    /// The tensors that are not stored, because they follow from stored ones.
    pub fn derived(&self) -> &BTreeMap<String, Derived> {
        &self.derived
    }

    /// A derived tensor as it would be if it were stored.
    pub fn derived_spec(&self, name: &str) -> Option<TensorSpec> {
        let derived = self.derived.get(name)?;
        let of = self.spec(self.find(&derived.of)?);
        let (shape, distribution) = (of.shape().to_vec(), of.distribution().clone());
        TensorSpec::new(derived.dtype, shape, distribution).ok()
    }

    /// Every name a tensor can be asked for by.
    pub fn all_names(&self) -> impl Iterator<Item = &str> {
        let others = self.aliases.keys().chain(self.derived.keys());
        let names = self.names.iter().chain(others);
        names.map(String::as_str)
    }

    /// The bytes of all tensors, each counted once however many ranks hold it.
    pub fn len_bytes(&self) -> u64 {
        self.specs.iter().map(tensor_bytes).sum()
    }

    /// One number that tells two layouts apart. It covers names, types, shapes, meshes, shardings, aliases and what is derived.
    ///
    /// The hash of a layout is the wrapping sum of the hashes of its entries, so that a committer can work out from the joint
    /// layout what each writer must have sent.
    pub fn hash(&self) -> u64 {
        let tensors = (0..self.len()).map(|index| self.entry_hash(index));
        let aliases = self.aliases.iter().map(|(name, of)| alias_hash(name, of));
        let derived = self.derived.iter();
        let derived = derived.map(|(name, derived)| derived_hash(name, derived));
        let all = tensors.chain(aliases).chain(derived);
        all.fold(0, u64::wrapping_add)
    }

    /// The hash a writer must send that holds exactly the tensors of this layout that `rank` holds.
    pub(crate) fn hash_held_by(&self, rank: usize, hashes: &EntryHashes) -> u64 {
        let held = |index: usize| self.specs[index].holds(rank);
        let tensors = (0..self.len())
            .filter(|index| held(*index))
            .map(|index| hashes.tensors[index]);
        let others = hashes
            .others
            .iter()
            .filter(|(of, _)| held(*of))
            .map(|(_, hash)| *hash);
        tensors.chain(others).fold(0, u64::wrapping_add)
    }

    /// The hash of every entry, worked out once.
    pub(crate) fn entry_hashes(&self) -> EntryHashes {
        let tensors = (0..self.len())
            .map(|index| self.entry_hash(index))
            .collect();
        let aliases = self
            .aliases
            .iter()
            .filter_map(|(name, of)| Some((self.find(of)?, alias_hash(name, of))));
        let derived = self.derived.iter().filter_map(|(name, derived)| {
            Some((self.find(&derived.of)?, derived_hash(name, derived)))
        });
        EntryHashes {
            tensors,
            others: aliases.chain(derived).collect(),
        }
    }

    fn entry_hash(&self, index: usize) -> u64 {
        let spec = &self.specs[index];
        let text = match spec.distribution() {
            Distribution::Mesh(sharding) => {
                format!("{}\n{spec}\n{}", self.names[index], sharding.mesh())
            }
            // A writer knows only its own pieces; what all must agree on is the tensor they are pieces of.
            Distribution::Listed(_) => {
                format!(
                    "{}\n{}\n{:?}",
                    self.names[index],
                    spec.dtype(),
                    spec.shape()
                )
            }
        };
        hash64(text.as_bytes())
    }

    /// The tensors that `rank` holds, as that rank would describe them.
    pub(crate) fn held_by(&self, rank: usize) -> Layout {
        let held: BTreeMap<String, TensorSpec> = self
            .iter()
            .filter(|(_, spec)| spec.holds(rank))
            .map(|(name, spec)| (name.to_string(), own_spec(spec, rank)))
            .collect();
        self.narrowed_to(held)
    }

    /// These tensors of the layout, with what stands for them and follows from them.
    fn narrowed_to(&self, tensors: BTreeMap<String, TensorSpec>) -> Layout {
        let mut aliases = self.aliases.clone();
        aliases.retain(|_, of| tensors.contains_key(of));
        let mut derived = self.derived.clone();
        derived.retain(|_, derived| tensors.contains_key(&derived.of));
        Layout::new(tensors, aliases).with_derived(derived)
    }

    /// Checks that no tensor has the name that a piece of another one would have in a file.
    pub(crate) fn check_names(&self) -> Result<(), String> {
        let looks_like_a_piece = |name: &str| {
            let (of, piece) = name.rsplit_once('@')?;
            let piece: Piece = piece.parse().ok()?;
            let other = self.spec(self.names.binary_search_by(|n| n.as_str().cmp(of)).ok()?);
            (piece.region.ndim() == other.shape().len()).then(|| of.to_string())
        };
        for name in &self.names {
            if let Some(of) = looks_like_a_piece(name) {
                return Err(format!(
                    "`{name}` is what a piece of tensor `{of}` is called"
                ));
            }
        }
        Ok(())
    }

    /// Checks that each tensor can be saved by a world of `size` ranks.
    pub(crate) fn check_world(&self, size: usize) -> Result<(), Error> {
        self.check_names().map_err(|reason| Error::State {
            name: "the state".into(),
            reason: format!("has names that cannot be told apart: {reason}"),
        })?;
        for (name, spec) in self.iter() {
            let rank = spec.max_rank();
            if rank >= size {
                return Err(Error::State {
                    name: name.into(),
                    reason: format!("lives on rank {rank}, but the world has {size} ranks"),
                });
            }
            if spec
                .sharding()
                .is_some_and(|sharding| !sharding.partial().is_empty())
            {
                return Err(Error::State {
                    name: name.into(),
                    reason: format!("is a partial result (`{spec}`): reduce it before saving"),
                });
            }
        }
        Ok(())
    }
}

/// The hashes of a layout's entries: by tensor; for aliases and derived tensors with the tensor they need.
#[derive(Debug)]
pub(crate) struct EntryHashes {
    tensors: Vec<u64>,
    others: Vec<(usize, u64)>,
}

fn alias_hash(name: &str, of: &str) -> u64 {
    hash64(format!("{name}\n= {of}").as_bytes())
}

fn derived_hash(name: &str, Derived { of, dtype }: &Derived) -> u64 {
    hash64(format!("{name}\n= {dtype}({of})").as_bytes())
}

/// The bytes of one whole tensor.
pub(crate) fn tensor_bytes(spec: &TensorSpec) -> u64 {
    let elements: usize = spec.shape().iter().product();
    // Odd counts of sub-byte elements take up the byte they end in.
    let bytes = spec.dtype().len_bytes(elements);
    bytes.unwrap_or((elements * spec.dtype().bits()).div_ceil(8)) as u64
}

/// Of a listed tensor a rank speaks only for itself.
pub(crate) fn own_spec(spec: &TensorSpec, rank: usize) -> TensorSpec {
    let Distribution::Listed(listed) = spec.distribution() else {
        return spec.clone();
    };
    let own = Listed::new([(rank, listed.pieces(rank).to_vec())].into());
    TensorSpec::new(spec.dtype(), spec.shape().to_vec(), own)
        .expect("fewer pieces of a valid tensor are valid")
}

/// The first rank that holds the tensor, in order of coordinates: it speaks for all.
pub(crate) fn first_rank(sharding: &Sharding) -> usize {
    let mut coords = vec![0; sharding.mesh().axes().len()];
    for &(axis, index) in sharding.pins() {
        coords[axis] = index;
    }
    let rank = sharding.mesh().rank_at(&coords);
    rank.expect("pins and zeros lie inside the mesh")
}
