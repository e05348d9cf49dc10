//! Layouts as JSON, and many writers' layouts joined into one.
//!
//! ```json
//! "layouts": [{"mesh": "dp=2,tp=4", "tensors": {"wte": "bf16[50257@tp, 768]", "norm": "f32[768]"}}],
//! "listed": {"table": {"dtype": "f32", "shape": [100, 8], "pieces": {"0": ["0:60,0:8"], "3": ["60:40,0:8"]}}},
//! "aliases": {"lm_head": "wte"},
//! "derived": {"norm.bf16": {"dtype": "bf16", "of": "norm"}}
//! ```

use super::{Layout, first_rank};
use crate::derived::{DERIVED_DTYPES, DERIVED_FROM, Derived};
use cairn_sharding::{Distribution, Listed, Mesh, Piece, TensorSpec};
use cairn_tensor::DType;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

impl Layout {
    /// The part of this layout that `rank` contributes to the joint one: formulas of which it is the first holder, and its own listed pieces.
    pub(crate) fn contributed_by(&self, rank: usize) -> Layout {
        let tensors: BTreeMap<String, TensorSpec> = self
            .iter()
            .filter(|(_, spec)| match spec.distribution() {
                Distribution::Mesh(sharding) => first_rank(sharding) == rank,
                Distribution::Listed(listed) => listed.by_rank().contains_key(&rank),
            })
            .map(|(name, spec)| (name.to_string(), spec.clone()))
            .collect();
        self.narrowed_to(tensors)
    }

    /// Adds the members that describe this layout to `out`.
    pub(crate) fn write_json(&self, out: &mut Map<String, Value>) {
        let mut layouts: Vec<(&Mesh, Map<String, Value>)> = Vec::new();
        let mut listed = Map::new();
        for (name, spec) in self.iter() {
            match spec.distribution() {
                Distribution::Mesh(sharding) => {
                    let mesh = sharding.mesh();
                    let known = layouts.iter().position(|(m, _)| *m == mesh);
                    let index = known.unwrap_or_else(|| {
                        layouts.push((mesh, Map::new()));
                        layouts.len() - 1
                    });
                    layouts[index]
                        .1
                        .insert(name.into(), json!(spec.to_string()));
                }
                Distribution::Listed(pieces) => {
                    listed.insert(name.into(), listed_json(spec, pieces));
                }
            }
        }
        let layouts: Vec<Value> = layouts
            .into_iter()
            .map(|(mesh, tensors)| json!({"mesh": mesh.to_string(), "tensors": tensors}))
            .collect();
        out.insert("layouts".into(), json!(layouts));
        out.insert("listed".into(), Value::Object(listed));
        out.insert("aliases".into(), json!(self.aliases));
        if !self.derived.is_empty() {
            let derived = self.derived.iter();
            let derived: Map<String, Value> = derived
                .map(|(name, Derived { of, dtype })| {
                    (name.clone(), json!({"dtype": dtype.name(), "of": of}))
                })
                .collect();
            out.insert("derived".into(), Value::Object(derived));
        }
    }

    /// Reads what [`Layout::write_json`] wrote.
    pub(crate) fn read_json(members: &Map<String, Value>) -> Result<Layout, String> {
        let mut tensors = BTreeMap::new();
        for layout in array(members, "layouts")? {
            let mesh: Mesh = text(layout, "mesh")?
                .parse()
                .map_err(|e| format!("mesh: {e}"))?;
            for (name, spec) in object(layout, "tensors")? {
                let spec = spec.as_str().ok_or("a tensor is not a string")?;
                let spec =
                    TensorSpec::parse(&mesh, spec).map_err(|e| format!("tensor `{name}`: {e}"))?;
                insert(&mut tensors, name, spec)?;
            }
        }
        for (name, entry) in members
            .get("listed")
            .and_then(Value::as_object)
            .ok_or("`listed` is not an object")?
        {
            insert(&mut tensors, name, read_listed(name, entry)?)?;
        }
        let aliases: BTreeMap<String, String> = members
            .get("aliases")
            .map_or(Ok(BTreeMap::new()), |value| {
                serde_json::from_value(value.clone()).map_err(|e| format!("aliases: {e}"))
            })?;
        let derived = read_derived(members)?;
        Layout::new(tensors, aliases)
            .with_derived(derived)
            .checked()
    }

    /// Joins what the writers contributed. Equal entries fold into one; pieces of a listed tensor are put together.
    pub(crate) fn join(parts: impl IntoIterator<Item = Layout>) -> Result<Layout, String> {
        let mut tensors: BTreeMap<String, TensorSpec> = BTreeMap::new();
        let mut aliases = BTreeMap::new();
        let mut derived = BTreeMap::new();
        for part in parts {
            for (name, spec) in part.names.into_iter().zip(part.specs) {
                match tensors.entry(name) {
                    Entry::Vacant(entry) => {
                        entry.insert(spec);
                    }
                    Entry::Occupied(mut entry) => {
                        join_specs(&entry.key().clone(), entry.get_mut(), &spec)?;
                    }
                }
            }
            for (name, of) in part.aliases {
                let other = aliases.insert(name.clone(), of.clone());
                if other.is_some_and(|other| other != of) {
                    return Err(format!("`{name}` is an alias of two tensors"));
                }
            }
            for (name, new) in part.derived {
                let other = derived.insert(name.clone(), new.clone());
                if other.is_some_and(|other| other != new) {
                    return Err(format!("`{name}` is derived from two tensors"));
                }
            }
        }
        Layout::new(tensors, aliases)
            .with_derived(derived)
            .checked()
    }

    /// The layout, if every name stands for one thing that is there.
    fn checked(self) -> Result<Self, String> {
        let stored = |name: &str| {
            let index = self
                .names
                .binary_search_by(|known| known.as_str().cmp(name));
            index.ok().map(|index| &self.specs[index])
        };
        for (name, of) in &self.aliases {
            if stored(of).is_none() || stored(name).is_some() {
                return Err(format!("`{name}` cannot be an alias of `{of}`"));
            }
        }
        for (name, Derived { of, dtype }) in &self.derived {
            let is_taken = stored(name).is_some() || self.aliases.contains_key(name);
            let fits = stored(of).is_some_and(|of| of.dtype() == DERIVED_FROM);
            if is_taken || !fits || !DERIVED_DTYPES.contains(dtype) {
                return Err(format!("`{name}` cannot be the {dtype} of `{of}`"));
            }
        }
        Ok(self)
    }
}

fn join_specs(name: &str, known: &mut TensorSpec, new: &TensorSpec) -> Result<(), String> {
    if known == new {
        return Ok(());
    }
    let same_tensor = known.dtype() == new.dtype() && known.shape() == new.shape();
    let (Distribution::Listed(here), Distribution::Listed(there), true) =
        (known.distribution(), new.distribution(), same_tensor)
    else {
        let (known, new) = (described(known), described(new));
        return Err(format!(
            "tensor `{name}` is {known} for one and {new} for another"
        ));
    };
    let mut pieces = here.by_rank().clone();
    pieces.extend(there.by_rank().clone());
    *known = TensorSpec::new(new.dtype(), new.shape().to_vec(), Listed::new(pieces))
        .map_err(|e| format!("tensor `{name}`: {e}"))?;
    Ok(())
}

/// A tensor with the ranks it lies on, which its own text leaves out.
fn described(spec: &TensorSpec) -> String {
    match spec.sharding() {
        Some(sharding) => format!("`{spec}` on mesh `{}`", sharding.mesh()),
        None => format!("`{spec}`"),
    }
}

fn insert(
    tensors: &mut BTreeMap<String, TensorSpec>,
    name: &str,
    spec: TensorSpec,
) -> Result<(), String> {
    match tensors.insert(name.to_string(), spec) {
        None => Ok(()),
        Some(_) => Err(format!("tensor `{name}` occurs twice")),
    }
}

/// Most checkpoints have nothing derived, and then say nothing of it.
fn read_derived(members: &Map<String, Value>) -> Result<BTreeMap<String, Derived>, String> {
    let Some(value) = members.get("derived") else {
        return Ok(BTreeMap::new());
    };
    let entries = value.as_object().ok_or("`derived` is not an object")?;
    let read = |(name, entry): (&String, &Value)| {
        let dtype = text(entry, "dtype")?.parse();
        let dtype: DType = dtype.map_err(|e| format!("derived tensor `{name}`: {e}"))?;
        let of = text(entry, "of")?.to_string();
        Ok((name.clone(), Derived { of, dtype }))
    };
    entries.iter().map(read).collect()
}

fn listed_json(spec: &TensorSpec, listed: &Listed) -> Value {
    let pieces: Map<String, Value> = listed
        .by_rank()
        .iter()
        .map(|(rank, held)| {
            let texts: Vec<String> = held.iter().map(Piece::to_string).collect();
            (rank.to_string(), json!(texts))
        })
        .collect();
    json!({"dtype": spec.dtype().name(), "shape": spec.shape(), "pieces": pieces})
}

fn read_listed(name: &str, entry: &Value) -> Result<TensorSpec, String> {
    let wrong = |what: &str| format!("tensor `{name}`: {what}");
    let dtype: DType = text(entry, "dtype")?
        .parse()
        .map_err(|e| wrong(&format!("{e}")))?;
    let shape: Vec<usize> = serde_json::from_value(entry["shape"].clone())
        .map_err(|e| wrong(&format!("shape: {e}")))?;
    let mut pieces = BTreeMap::new();
    for (rank, held) in object(entry, "pieces")? {
        let rank: usize = rank.parse().map_err(|_| wrong("a rank is not a number"))?;
        let held: Vec<String> =
            serde_json::from_value(held.clone()).map_err(|e| wrong(&e.to_string()))?;
        let held: Result<Vec<Piece>, _> = held.iter().map(|text| text.parse()).collect();
        pieces.insert(rank, held.map_err(|e| wrong(&format!("{e}")))?);
    }
    TensorSpec::new(dtype, shape, Listed::new(pieces)).map_err(|e| wrong(&e.to_string()))
}

fn array<'a>(members: &'a Map<String, Value>, key: &str) -> Result<&'a Vec<Value>, String> {
    members
        .get(key)
        .and_then(Value::as_array)
        .ok_or_else(|| format!("`{key}` is not a list"))
}

fn object<'a>(value: &'a Value, key: &str) -> Result<&'a Map<String, Value>, String> {
    value
        .get(key)
        .and_then(Value::as_object)
        .ok_or_else(|| format!("`{key}` is not an object"))
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("`{key}` is not a string"))
}

#[cfg(test)]
mod tests {
    //! Writers that disagree are told in what.

    use super::*;

    fn layout(mesh: &str, spec: &str) -> Layout {
        let spec = TensorSpec::parse(&mesh.parse().unwrap(), spec).unwrap();
        Layout::new([("step".to_string(), spec)].into(), BTreeMap::new())
    }

    #[test]
    fn tensors_that_differ_only_in_their_ranks_are_told_apart() {
        let joined = Layout::join([layout("dp=2", "f32[]"), layout("dp=2 on 2..4", "f32[]")]);
        assert_eq!(
            joined.unwrap_err(),
            "tensor `step` is `f32[]` on mesh `dp=2` for one and `f32[]` on mesh `dp=2 on 2..4` for another"
        );
    }

    fn derived(name: &str, of: &str, dtype: DType) -> Result<Layout, String> {
        let of = of.to_string();
        let derived = [(name.to_string(), Derived { of, dtype })].into();
        layout("single", "f32[2]").with_derived(derived).checked()
    }

    #[test]
    fn what_is_derived_survives_json_and_changes_the_hash() {
        let plain = layout("single", "f32[2]");
        let derived = derived("half", "step", DType::F16).unwrap();
        let mut members = Map::new();
        derived.write_json(&mut members);
        assert_eq!(Layout::read_json(&members), Ok(derived.clone()));
        assert_ne!(derived.hash(), plain.hash());
        let held = derived.hash_held_by(0, &derived.entry_hashes());
        assert_eq!(held, derived.hash());
        plain.write_json(&mut members);
        members.remove("derived");
        assert_eq!(Layout::read_json(&members), Ok(plain));
    }

    #[test]
    fn nothing_is_derived_from_what_is_not_there_or_under_a_name_that_is() {
        for (name, of, dtype) in [
            ("half", "stop", DType::F16),
            ("step", "step", DType::F16),
            ("half", "step", DType::F8E4M3),
        ] {
            let refused = derived(name, of, dtype).unwrap_err();
            assert_eq!(refused, format!("`{name}` cannot be the {dtype} of `{of}`"));
        }
    }

    #[test]
    fn equal_tensors_fold_into_one() {
        let joined = Layout::join([layout("tp=2", "f32[4@tp]"), layout("tp=2", "f32[4@tp]")]);
        assert_eq!(joined.unwrap().names, ["step"]);
    }
}
