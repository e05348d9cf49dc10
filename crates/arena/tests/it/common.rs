//! A small model without arithmetic: its gradients are numbers that every layout sums exactly.

use cairn_arena::{
    Arena, Bucket, Error, Groups, Hyper, Init, Optimizer, Options, Parameter, Slot, Stage,
    StepReport, Tied,
};
use cairn_collectives::{Communicator, along, threads};
use cairn_kernels::Pool;
use cairn_sharding::{Mesh, chunk};
use cairn_tensor::DType;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The samples of a step, over all ranks.
const SAMPLES: usize = 12;

/// The name that the first and the last block have in common.
pub(crate) const TIED: &str = "embed.weight";

/// The parameters of a block.
pub(crate) type Block = Vec<Parameter>;

/// The values of every parameter, each with its place in the whole.
pub(crate) type Values = BTreeMap<String, Vec<(usize, f32)>>;

/// How a run is laid out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Layout {
    pub(crate) mesh: &'static str,
    pub(crate) stage: Stage,
    pub(crate) dtype: DType,
    pub(crate) accumulation: usize,
}

impl Layout {
    /// Everything on one rank.
    pub(crate) fn single(dtype: DType) -> Self {
        Self::new("dp=1,pp=1,tp=1", Stage::Nothing, dtype)
    }

    pub(crate) fn new(mesh: &'static str, stage: Stage, dtype: DType) -> Self {
        let accumulation = 1;
        Self {
            mesh,
            stage,
            dtype,
            accumulation,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self {
            mesh,
            stage,
            dtype,
            accumulation,
        } = self;
        write!(f, "{mesh} {stage:?} {dtype} × {accumulation}")
    }
}

/// A rank with its part of the model.
pub(crate) struct Rank {
    pub(crate) layout: Layout,
    pub(crate) mesh: Mesh,
    pub(crate) world: Arc<dyn Communicator>,
    pub(crate) arena: Arena,
    groups: Groups,
}

pub(crate) const HYPER: Hyper = Hyper {
    learning_rate: 0.01,
    weight_decay: 0.1,
    clip: Some(1.0),
    skip: false,
};

pub(crate) fn parameter(name: &str, shape: &[usize], split: Option<usize>) -> Parameter {
    Parameter {
        name: name.into(),
        shape: shape.to_vec(),
        split,
        init: Init::Normal { deviation: 0.5 },
        decay: true,
        partial_gradient: false,
    }
}

/// Blocks with all that is odd: a scalar, an empty parameter, one element, lengths that nothing divides.
pub(crate) fn blocks() -> Vec<Block> {
    let embedding = parameter(TIED, &[5, 3], Some(0));
    let norm = Parameter {
        init: Init::Ones,
        decay: false,
        partial_gradient: true,
        ..parameter("norm.weight", &[7], None)
    };
    vec![
        vec![embedding.clone(), parameter("scale", &[], None)],
        vec![
            norm,
            parameter("up.weight", &[6, 4], Some(0)),
            parameter("nothing", &[0, 4], Some(1)),
            parameter("down.weight", &[4, 6], Some(1)),
        ],
        vec![parameter("one", &[1], None), embedding],
    ]
}

/// Runs `body` on every rank of a layout, each with a fresh arena.
pub(crate) fn on<R: Send>(
    layout: Layout,
    body: impl Fn(&mut Rank) -> Result<R, Error> + Sync,
) -> Vec<R> {
    on_model(layout, &blocks(), |group| group, body)
}

/// As [`on`], with these blocks, and the group along `dp` put into something else.
pub(crate) fn on_model<R: Send>(
    layout: Layout,
    blocks: &[Block],
    wrap: impl Fn(Arc<dyn Communicator>) -> Arc<dyn Communicator> + Sync,
    body: impl Fn(&mut Rank) -> Result<R, Error> + Sync,
) -> Vec<R> {
    let mesh: Mesh = layout.mesh.parse().unwrap();
    let patience = threads::Options {
        timeout: Duration::from_secs(60),
    };
    let answers = threads::run(mesh.size(), patience, |world| {
        body(&mut Rank::new(layout, &mesh, blocks, world, &wrap)?)
    });
    answers.unwrap_or_else(|error: Error| panic!("{layout}: {error}"))
}

impl Rank {
    fn new(
        layout: Layout,
        mesh: &Mesh,
        blocks: &[Block],
        world: Arc<dyn Communicator>,
        wrap: &dyn Fn(Arc<dyn Communicator>) -> Arc<dyn Communicator>,
    ) -> Result<Self, Error> {
        let [dp, pp, tp] = ["dp", "pp", "tp"].map(|axis| along(world.as_ref(), mesh, axis));
        let (dp, pp, tp) = (dp?, pp?, tp?);
        // The first and the last stage make groups of their own.
        let is_end = pp.rank() == 0 || pp.rank() + 1 == pp.size();
        let ends = pp.split(u64::from(!is_end), 0)?;
        let is_tied = blocks.concat().iter().any(|one| one.name == TIED);
        let tied = (is_tied && is_end && pp.size() > 1).then(|| Tied {
            group: ends,
            names: vec![TIED.into()],
        });
        let groups = Groups {
            world: world.clone(),
            dp: wrap(dp),
            tp: tp.clone(),
            tied,
        };
        let own = chunk(blocks.len(), pp.size(), pp.rank());
        let bucket = |block: &Block| Bucket::new(block.clone(), tp.rank(), tp.size());
        let arena = Arena::new(
            blocks[own].iter().map(bucket).collect(),
            groups.clone(),
            options(layout.stage, layout.dtype),
        )?;
        Ok(Self {
            layout,
            mesh: mesh.clone(),
            world,
            arena,
            groups,
        })
    }

    /// Makes these steps, and returns what the last one did.
    pub(crate) fn train(&mut self, steps: Range<usize>) -> Result<StepReport, Error> {
        let mut last = None;
        for step in steps {
            self.backward(step)?;
            last = Some(self.arena.step(&HYPER)?);
        }
        Ok(last.unwrap())
    }

    /// Passes over the model for this rank's samples.
    pub(crate) fn backward(&mut self, step: usize) -> Result<(), Error> {
        let dp = &self.groups.dp;
        let own = chunk(SAMPLES, dp.size(), dp.rank());
        for micro_batch in 0..self.layout.accumulation {
            let part = chunk(own.len(), self.layout.accumulation, micro_batch);
            let samples = own.start + part.start..own.start + part.end;
            for bucket in 0..self.arena.len() {
                if bucket + 1 < self.arena.len() {
                    self.arena.prefetch(bucket + 1);
                }
                assert_eq!(
                    self.arena.weights(bucket)?.len(),
                    self.arena.bucket(bucket).len()
                );
                self.arena.release(bucket);
            }
            for bucket in (0..self.arena.len()).rev() {
                self.backward_of(bucket, step, samples.clone())?;
                let last = micro_batch + 1 == self.layout.accumulation;
                self.arena.ready(bucket, last)?;
            }
        }
        Ok(())
    }

    /// Adds the gradients of samples to a bucket.
    pub(crate) fn backward_of(
        &mut self,
        bucket: usize,
        step: usize,
        samples: Range<usize>,
    ) -> Result<(), Error> {
        let slots = self.arena.bucket(bucket).slots().to_vec();
        let is_head = slots
            .first()
            .is_some_and(|slot| slot.parameter.name == "one");
        let (weights, gradients) = self.arena.weights_and_gradients(bucket)?;
        assert_eq!(weights.len(), gradients.len());
        for slot in &slots {
            let share = match slot.parameter.partial_gradient {
                true => tp_share(self.groups.tp.as_ref()),
                false => 1.0,
            };
            let places = gradients[slot.range.clone()].iter_mut();
            for (gradient, element) in places.zip(elements(slot)) {
                for sample in samples.clone() {
                    let name = number(slot.parameter.name.bytes().map(usize::from));
                    let parts = [name, usize::from(is_head), element, step, sample];
                    *gradient += share * (number(parts) % 17) as f32 / 8.0 - share;
                }
            }
        }
        self.arena.release(bucket);
        Ok(())
    }

    /// The parameters of this rank.
    pub(crate) fn values(&mut self) -> Result<Values, Error> {
        let mut values = Values::new();
        for bucket in 0..self.arena.len() {
            let slots = self.arena.bucket(bucket).slots().to_vec();
            let weights = self.arena.weights(bucket)?;
            for slot in slots {
                let part = weights[slot.range.clone()].iter().copied();
                let part: Vec<_> = elements(&slot).into_iter().zip(part).collect();
                let before = values.insert(slot.parameter.name, part.clone());
                assert!(
                    before.is_none_or(|before| before == part),
                    "tied values differ"
                );
            }
            self.arena.release(bucket);
        }
        Ok(values)
    }
}

pub(crate) fn options(stage: Stage, dtype: DType) -> Options {
    Options {
        dtype,
        stage,
        optimizer: Optimizer::default(),
        offload: None,
        seed: 3,
        pool: Pool::new(1),
    }
}

/// Which elements of the whole parameter a rank holds.
fn elements(slot: &Slot) -> Vec<usize> {
    let (shape, region) = (&slot.parameter.shape, slot.region());
    let strides = cairn_tensor::row_major_strides(shape);
    let inside = |element: &usize| {
        let at = |dim: usize| element / strides[dim] % shape[dim];
        (0..shape.len()).all(|dim| (region.offset[dim]..region.end(dim)).contains(&at(dim)))
    };
    (0..shape.iter().product()).filter(inside).collect()
}

/// Shares that sum to 1 exactly.
fn tp_share(tp: &dyn Communicator) -> f32 {
    match (tp.rank(), tp.size()) {
        (0, 1) => 1.0,
        (0, _) => 0.75,
        (1, _) => 0.25,
        _ => 0.0,
    }
}

/// A small number that looks random.
fn number(parts: impl IntoIterator<Item = usize>) -> usize {
    let mix = |state: usize, part| (state * 31 + part + 7) % 1009;
    parts.into_iter().fold(1, mix)
}

/// That every rank holds parts of the same values.
pub(crate) fn assert_parts_of(whole: &Values, ranks: &[Values], what: &dyn fmt::Display) {
    let mut held: BTreeMap<&str, usize> = BTreeMap::new();
    for rank in ranks {
        for (name, part) in rank {
            for (element, value) in part {
                let (_, expected) = whole[name][*element];
                assert_eq!(
                    value.to_bits(),
                    expected.to_bits(),
                    "{what}: {name}[{element}]"
                );
            }
            *held.entry(name).or_default() += part.len();
        }
    }
    for (name, values) in whole {
        assert!(held[name.as_str()] >= values.len(), "{what}: all of {name}");
    }
}
