//! A made-up training state whose every element is known: what rank and layout hold it does not matter.

use cairn::checkpoint::{Error, State, Target};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::tensor::{DType, Overflow, cast};
use std::collections::BTreeMap;

/// The tensors of a layer, in quarters of the hidden size, and the dim that tensor parallelism splits.
const LAYER: [(&str, &[usize], Option<usize>); 7] = [
    ("attn.qkv", &[12, 4], Some(0)),
    ("attn.out", &[4, 4], Some(1)),
    ("attn.norm", &[4], None),
    ("mlp.gate", &[11, 4], Some(0)),
    ("mlp.up", &[11, 4], Some(0)),
    ("mlp.down", &[4, 11], Some(1)),
    ("mlp.norm", &[4], None),
];
const EMBEDDING: (&str, &[usize], Option<usize>) = ("embed", &[64, 4], Some(0));
/// bf16 weights, and what AdamW keeps in f32 for each of them.
const KINDS: [&str; 4] = ["model", "master", "exp_avg", "exp_avg_sq"];
const BYTES_PER_PARAMETER: usize = 2 + 3 * 4;

/// A rank's tensors in memory.
pub(super) type Memory = BTreeMap<String, Vec<u8>>;

/// The tensors of a model and the way they are spread over a mesh.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) mesh: Mesh,
    pub(super) specs: BTreeMap<String, TensorSpec>,
}

impl Model {
    /// A decoder of about `bytes` of training state on a mesh with axes among `dp`, `pp` and `tp`.
    pub(super) fn new(mesh: &str, bytes: f64) -> Result<Self, cairn::sharding::Error> {
        let mesh: Mesh = mesh.parse()?;
        let (quarter, layers) = sizes(bytes);
        let stages = mesh.axis("pp").map_or(1, |axis| mesh.axes()[axis].size);
        let mut specs = BTreeMap::new();
        let mut add = |prefix: &str, (name, quarters, split): (&str, &[usize], _), stage| {
            let shape: Vec<usize> = quarters.iter().map(|size| size * quarter).collect();
            add(
                &mut specs,
                &mesh,
                &format!("{prefix}{name}"),
                &shape,
                split,
                stage,
            )
        };
        add("", EMBEDDING, 0)?;
        for layer in 0..layers {
            let stage = layer * stages / layers;
            for tensor in LAYER {
                add(&format!("layers.{layer}."), tensor, stage)?;
            }
        }
        Ok(Self { mesh, specs })
    }

    /// The bytes of the whole state, each element counted once.
    pub(super) fn len_bytes(&self) -> u64 {
        self.specs
            .values()
            .map(|spec| bytes_of(spec, spec.shape()))
            .sum()
    }

    /// The elements of the weights.
    pub(super) fn parameters(&self) -> u64 {
        let weights = self
            .specs
            .iter()
            .filter(|(name, _)| name.starts_with("model."));
        weights
            .map(|(_, spec)| spec.shape().iter().product::<usize>() as u64)
            .sum()
    }

    /// What `rank` holds after `steps` steps of training.
    pub(super) fn trained(&self, rank: usize, steps: u64) -> Memory {
        let held = self.specs.iter().filter(|(_, spec)| spec.holds(rank));
        held.map(|(name, spec)| (name.clone(), train(name, spec, rank, steps)))
            .collect()
    }

    /// Memory of the right size for `rank`, in use already as a trainer's would be.
    pub(super) fn blank(&self, rank: usize) -> Memory {
        let held = self.specs.iter().filter(|(_, spec)| spec.holds(rank));
        held.map(|(name, spec)| {
            let len = spec.local_element_count(rank) * spec.dtype().bits() / 8;
            (name.clone(), vec![0xFF; len])
        })
        .collect()
    }

    /// The memory of `rank` as a state to save.
    pub(super) fn state<'a>(&self, rank: usize, memory: &'a Memory) -> Result<State<'a>, Error> {
        let mut state = State::new(rank);
        for (name, bytes) in memory {
            state.tensor(name, &self.specs[name], bytes)?;
        }
        Ok(state)
    }

    /// The memory of `rank` as targets to load into.
    pub(super) fn targets<'a>(
        &self,
        rank: usize,
        memory: &'a mut Memory,
    ) -> Result<Vec<Target<'a>>, Error> {
        let target = |(name, bytes): (&String, &'a mut Vec<u8>)| {
            Target::new(name, &self.specs[name], rank, bytes)
        };
        memory.iter_mut().map(target).collect()
    }
}

/// A quarter of the hidden size and the even number of layers, at least four, that make about `bytes`.
fn sizes(bytes: f64) -> (usize, usize) {
    let count = |quarters: &[usize]| quarters.iter().product::<usize>() * BYTES_PER_PARAMETER;
    let layer: usize = LAYER.iter().map(|(_, quarters, _)| count(quarters)).sum();
    let embedding = count(EMBEDDING.1);
    // Norms are vectors; counted as matrices here, they change nothing that matters.
    let fits = |quarter: &usize, layers: usize| {
        (embedding + layers * layer) as f64 * (quarter * quarter) as f64 <= bytes
    };
    let quarters = (2..12).map(|power| 1 << power);
    let quarter = quarters.rev().find(|quarter| fits(quarter, 4)).unwrap_or(4);
    let layers = (4..1000)
        .step_by(2)
        .take_while(|layers| fits(&quarter, *layers))
        .last();
    (quarter, layers.unwrap_or(4))
}

/// Adds a tensor with its optimizer state: split over `tp`, on one pipeline stage, the f32 part cut flat over `dp`.
fn add(
    specs: &mut BTreeMap<String, TensorSpec>,
    mesh: &Mesh,
    name: &str,
    shape: &[usize],
    split: Option<usize>,
    stage: usize,
) -> Result<(), cairn::sharding::Error> {
    let has = |axis: &str| mesh.axis(axis).is_ok();
    let dim = |(dim, size): (usize, &usize)| match split == Some(dim) && has("tp") {
        true => format!("{size}@tp"),
        false => size.to_string(),
    };
    let dims = shape
        .iter()
        .enumerate()
        .map(dim)
        .collect::<Vec<_>>()
        .join(", ");
    let at = if has("pp") {
        format!(" | at(pp={stage})")
    } else {
        String::new()
    };
    let flat = if has("dp") { " | flat(dp)" } else { "" };
    for kind in KINDS {
        let text = match kind {
            "model" => format!("bf16[{dims}{at}]"),
            _ => format!("f32[{dims}{flat}{at}]"),
        };
        specs.insert(format!("{kind}.{name}"), TensorSpec::parse(mesh, &text)?);
    }
    Ok(())
}

fn bytes_of(spec: &TensorSpec, shape: &[usize]) -> u64 {
    (shape.iter().product::<usize>() * spec.dtype().bits() / 8) as u64
}

/// The local part of a tensor after `steps` steps.
fn train(name: &str, spec: &TensorSpec, rank: usize, steps: u64) -> Vec<u8> {
    let (kind, parameter) = name.split_once('.').unwrap_or((name, ""));
    let seed = parameter
        .bytes()
        .fold(0xCBF2_9CE4, |hash, byte| mix(hash, u64::from(byte)));
    let mut values = vec![0_f32; spec.local_element_count(rank)];
    let strides = cairn::tensor::row_major_strides(spec.shape());
    for held in spec.local_boxes(rank) {
        let row = held.region.extent.last().copied().unwrap_or(1);
        for index in 0..held.region.element_count() / row.max(1) {
            // The box's rows in order: the position of each in the tensor and in memory.
            let (mut rest, mut global, mut local) = (index, 0, held.local.offset);
            for dim in (0..held.region.ndim()).rev().skip(1) {
                let at = rest % held.region.extent[dim];
                rest /= held.region.extent[dim];
                global += (held.region.offset[dim] + at) * strides[dim];
                local += at * held.local.strides[dim];
            }
            global += held.region.offset.last().copied().unwrap_or(0);
            for (element, value) in values[local..local + row].iter_mut().enumerate() {
                *value = adam(kind, seed, (global + element) as u64, steps);
            }
        }
    }
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    if spec.dtype() == DType::F32 {
        return bytes;
    }
    let mut narrow = vec![0; bytes.len() / 2];
    cast(
        DType::F32,
        spec.dtype(),
        &bytes,
        &mut narrow,
        Overflow::Native,
    )
    .expect("two floats");
    narrow
}

/// One element after `steps` steps of AdamW on made-up gradients.
fn adam(kind: &str, seed: u64, index: u64, steps: u64) -> f32 {
    let mut weight = noise(seed, index) * 0.02;
    let (mut mean, mut square) = (0.0_f32, 0.0_f32);
    for step in 1..=steps {
        let gradient = noise(seed ^ (step << 40), index);
        mean = 0.9 * mean + 0.1 * gradient;
        square = 0.999 * square + 0.001 * gradient * gradient;
        weight -= 1e-3 * mean / (square.sqrt() + 1e-8) + 1e-5 * weight;
    }
    match kind {
        "exp_avg" => mean,
        "exp_avg_sq" => square,
        _ => weight,
    }
}

/// A number between -1 and 1 that looks random.
fn noise(seed: u64, index: u64) -> f32 {
    let bits = mix(seed, index) >> 40;
    bits as f32 / (1_u64 << 23) as f32 - 1.0
}

fn mix(seed: u64, value: u64) -> u64 {
    let mixed = (seed ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}
