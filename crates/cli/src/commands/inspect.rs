//! `cairn inspect`: what a checkpoint or model contains.

mod grid;
mod map;
mod patterns;
mod summary;
mod tokens;
mod tree;

pub(crate) use map::Map;

use crate::args::Inspect;
use crate::error::{Error, Exit};
use crate::open::{Opened, open_place, place};
use crate::printer::Printer;
use cairn::checkpoint::{Place, Source};
use cairn::sharding::{Distribution, Sharding, TensorSpec};
use cairn::tensor::{DType, element_count};
use serde::Serialize;
use summary::Summary;

pub(crate) fn run(args: &Inspect, printer: &Printer) -> Result<Exit, Error> {
    let paint = printer.paint();
    let place = place(&args.path);
    let is_run = matches!(place, Ok(Place::Run(_) | Place::Step(..)));
    if !is_run && let Some(tokens) = tokens::find(&args.path)? {
        printer.report(&tokens, || tokens.text(paint))?;
        return Ok(Exit::Done);
    }
    let opened = open_place(&args.path, place?, printer)?;
    if let Some(name) = &args.map {
        let map = map::Map::new(&opened, name)?;
        printer.report(&map, || map.text(paint))?;
        return Ok(Exit::Done);
    }
    let tensors = tensors(&opened);
    let summary = Summary::new(args, &opened, &tensors)?;
    printer.report(&summary, || match args.tree {
        true => tree::text(&tensors, paint),
        false => summary.text(paint),
    })?;
    if !args.tree {
        printer.note("\n`--tree` lists every tensor, `--map NAME` draws who holds what of one");
    }
    Ok(Exit::Done)
}

/// One tensor, as it is shown.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    /// For each dim the mesh axes that split it; nothing for formats that know no sharding.
    pub(crate) sharding: Option<String>,
    pub(crate) mesh: Option<String>,
    pub(crate) len_bytes: u64,
}

/// Every tensor, by name; other names of a tensor are not counted again.
fn tensors(opened: &Opened) -> Vec<Tensor> {
    if let Some(checkpoint) = opened.checkpoint() {
        let layout = &checkpoint.manifest().layout;
        let stored = layout.iter();
        let stored = stored.map(|(name, spec)| Tensor::of_spec(name, spec));
        let aliases = checkpoint.aliases();
        let derived = layout.derived().keys();
        let derived = derived.filter(|name| !aliases.contains_key(*name));
        let derived =
            derived.filter_map(|name| Some(Tensor::of_spec(name, &layout.derived_spec(name)?)));
        let mut tensors: Vec<Tensor> = stored.chain(derived).collect();
        tensors.sort_by(|one, other| one.name.cmp(&other.name));
        return tensors;
    }
    let model = opened.model().into_iter();
    let stored = model.flat_map(|model| &model.tensors);
    stored
        .map(|(name, tensor)| Tensor::unsharded(name, tensor.dtype, &tensor.shape))
        .collect()
}

impl Tensor {
    /// A tensor of a format that knows no sharding.
    fn unsharded(name: &str, dtype: DType, shape: &[usize]) -> Self {
        Self {
            name: name.to_string(),
            dtype: dtype.to_string(),
            shape: shape.to_vec(),
            sharding: None,
            mesh: None,
            len_bytes: len_bytes(dtype, shape),
        }
    }

    fn of_spec(name: &str, spec: &TensorSpec) -> Self {
        let (sharding, mesh) = match spec.distribution() {
            Distribution::Mesh(sharding) => (how(sharding), Some(sharding.mesh().to_string())),
            Distribution::Listed(_) => ("listed".to_string(), None),
        };
        Self {
            name: name.to_string(),
            dtype: spec.dtype().to_string(),
            shape: spec.shape().to_vec(),
            sharding: Some(sharding),
            mesh,
            len_bytes: len_bytes(spec.dtype(), spec.shape()),
        }
    }
}

fn how(sharding: &Sharding) -> String {
    let cut = sharding.dims().iter().any(|dim| !dim.axes.is_empty());
    let suffixed = !sharding.flat().is_empty() || !sharding.pins().is_empty();
    match (cut || suffixed, sharding.mesh().size()) {
        (true, _) => sharding.to_string(),
        (false, 1) => "whole".to_string(),
        (false, _) => "replicated".to_string(),
    }
}

fn len_bytes(dtype: DType, shape: &[usize]) -> u64 {
    let bytes = element_count(shape).and_then(|count| dtype.len_bytes(count));
    bytes.map_or(0, |bytes| bytes as u64)
}
