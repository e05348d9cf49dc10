//! The state that is moved: a small Llama in bf16 with fp32 master weights and Adam moments, in several layouts.

use cairn::sharding::{Mesh, TensorSpec};
use cairn::store::AlignedBuffer;
use std::collections::BTreeMap;

/// Names with the way each tensor is spread over ranks.
pub(crate) type Specs = BTreeMap<String, TensorSpec>;

const HIDDEN: usize = 1024;
const KEY_VALUE: usize = 256;
const INTERMEDIATE: usize = 2816;
const VOCABULARY: usize = 8192;
/// Name and shape of a layer's tensors, and the dim that tensor parallelism splits.
const LAYER: [(&str, &[usize], usize); 9] = [
    ("input_layernorm", &[HIDDEN], 0),
    ("self_attn.q_proj", &[HIDDEN, HIDDEN], 0),
    ("self_attn.k_proj", &[KEY_VALUE, HIDDEN], 0),
    ("self_attn.v_proj", &[KEY_VALUE, HIDDEN], 0),
    ("self_attn.o_proj", &[HIDDEN, HIDDEN], 1),
    ("post_attention_layernorm", &[HIDDEN], 0),
    ("mlp.gate_proj", &[INTERMEDIATE, HIDDEN], 0),
    ("mlp.up_proj", &[INTERMEDIATE, HIDDEN], 0),
    ("mlp.down_proj", &[HIDDEN, INTERMEDIATE], 1),
];
const KINDS: [(&str, &str, usize); 4] = [
    ("model", "bf16", 2),
    ("master", "f32", 4),
    ("exp_avg", "f32", 4),
    ("exp_avg_sq", "f32", 4),
];

/// How a state is spread over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Dim 0 of every tensor split over this many ranks, as FSDP does.
    Rows(usize),
    /// Dim 1 of every matrix split, vectors whole.
    Columns(usize),
    /// Megatron's tensor parallelism: columns or rows by the tensor's place in the block.
    Tensor(usize),
    /// Layers dealt to pipeline stages, replicated over `dp` inside a stage, optimizer state cut flat over `dp`.
    Staged { pp: usize, dp: usize },
}

impl Layout {
    fn mesh(self) -> Mesh {
        let axes = match self {
            Layout::Rows(n) => vec![("dp", n)],
            Layout::Columns(n) | Layout::Tensor(n) => vec![("tp", n)],
            Layout::Staged { pp, dp } => vec![("pp", pp), ("dp", dp)],
        };
        Mesh::new(axes).expect("a small mesh")
    }

    fn spec(
        self,
        dtype: &str,
        shape: &[usize],
        split: usize,
        stage: usize,
        optimizer: bool,
    ) -> String {
        let dims = |marked: Option<(usize, &str)>| {
            let dim = |(index, size): (usize, &usize)| match marked {
                Some((dim, axis)) if dim == index => format!("{size}@{axis}"),
                _ => size.to_string(),
            };
            shape
                .iter()
                .enumerate()
                .map(dim)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self {
            Layout::Rows(_) => format!("{dtype}[{}]", dims(Some((0, "dp")))),
            Layout::Columns(_) => {
                format!("{dtype}[{}]", dims((shape.len() > 1).then_some((1, "tp"))))
            }
            Layout::Tensor(_) => format!(
                "{dtype}[{}]",
                dims((shape.len() > 1).then_some((split, "tp")))
            ),
            Layout::Staged { .. } => {
                let flat = if optimizer { " | flat(dp)" } else { "" };
                format!("{dtype}[{}{flat} | at(pp={stage})]", dims(None))
            }
        }
    }

    /// Every tensor of a state of about `gigabytes`.
    pub(crate) fn specs(self, gigabytes: f64) -> Specs {
        let layers = layers(gigabytes);
        let mesh = self.mesh();
        let stages = match self {
            Layout::Staged { pp, .. } => pp,
            _ => 1,
        };
        let mut tensors: Vec<(String, &[usize], usize, usize)> =
            vec![("embed_tokens".into(), &[VOCABULARY, HIDDEN], 0, 0)];
        for layer in 0..layers {
            let stage = layer * stages / layers;
            for (name, shape, split) in LAYER {
                tensors.push((format!("layers.{layer}.{name}"), shape, split, stage));
            }
        }
        let mut specs = Specs::new();
        for (name, shape, split, stage) in &tensors {
            for (kind, dtype, _) in KINDS {
                let text = self.spec(dtype, shape, *split, *stage, kind != "model");
                let spec = TensorSpec::parse(&mesh, &text).expect("a spec of this file");
                specs.insert(format!("{kind}.{name}.weight"), spec);
            }
        }
        specs
    }
}

fn layers(gigabytes: f64) -> usize {
    let per_element: usize = KINDS.iter().map(|(_, _, bytes)| bytes).sum();
    let elements: usize = LAYER
        .iter()
        .map(|(_, shape, _)| shape.iter().product::<usize>())
        .sum();
    let embedding = (per_element * VOCABULARY * HIDDEN) as f64;
    let layers = (gigabytes * 1e9 - embedding) / (per_element * elements) as f64;
    // Even, so that two pipeline stages are equal.
    let pairs = (1..1000_u32).take_while(|pairs| f64::from(*pairs) <= (layers / 2.0).round());
    2 * pairs.count().max(1)
}

/// The bytes of a state, each tensor counted once.
pub(crate) fn len_bytes(specs: &Specs) -> u64 {
    let bytes =
        |spec: &TensorSpec| spec.shape().iter().product::<usize>() * spec.dtype().bits() / 8;
    specs.values().map(|spec| bytes(spec) as u64).sum()
}

/// Fills memory so that neighbours differ and two seeds differ.
pub(crate) fn fill(memory: &mut [u8], seed: usize) {
    let pattern: Vec<u8> = (0..=250_u8)
        .cycle()
        .skip(seed % 251)
        .take(251 * 64)
        .collect();
    for chunk in memory.chunks_mut(pattern.len()) {
        chunk.copy_from_slice(&pattern[..chunk.len()]);
    }
}

/// A rank's memory, aligned as frameworks align tensors, and better.
pub(crate) fn allocate(specs: &Specs, rank: usize) -> BTreeMap<String, AlignedBuffer> {
    let mut memory = BTreeMap::new();
    for (seed, (name, spec)) in specs.iter().enumerate().filter(|(_, (_, s))| s.holds(rank)) {
        let len = spec.local_element_count(rank) * spec.dtype().bits() / 8;
        let mut bytes = AlignedBuffer::new(len);
        fill(&mut bytes, seed * 31 + rank * 7);
        memory.insert(name.clone(), bytes);
    }
    memory
}
