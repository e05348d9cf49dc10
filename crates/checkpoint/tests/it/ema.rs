//! Averages across saves, resumes and layouts, and those worked out from stored steps. The reference is arithmetic in `f64`.

use crate::common::{cut, f32s, latest, memory, quick, spec};
use cairn_checkpoint::ema::{Averaged, Averages, Ema, OnChange, Start, stored_name};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, LoadOptions, SaveOptions, State, Strictness, Target, World,
};
use cairn_sharding::{Listed, Mesh, Piece, TensorSpec};
use cairn_store::Store;
use cairn_tensor::DType;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

/// The tensors of the model on a mesh, with a scalar and an empty one among them.
fn model(mesh: &str) -> BTreeMap<String, TensorSpec> {
    let tp = if mesh.contains("tp") { "@tp" } else { "" };
    let flat = if mesh.contains("dp") {
        " | flat(dp)"
    } else {
        ""
    };
    let texts = [
        ("embed", format!("f32[37{tp}, 16]")),
        ("flat", format!("f32[7, 5{flat}]")),
        ("scale", "f32[]".to_string()),
        ("empty", "f32[0, 4]".to_string()),
    ];
    let parsed = texts.map(|(name, text)| (name.to_string(), spec(mesh, &text)));
    parsed.into()
}

/// The whole weights of a tensor at a step.
fn weights(name: &str, step: u64, shape: &[usize]) -> Vec<f32> {
    let count = shape.iter().product();
    let seed = name.len() as f32;
    let value = |index: usize| ((step as f32).sqrt() + seed * index as f32).sin() * 2.0;
    (0..count).map(value).collect()
}

fn definitions() -> Vec<Ema> {
    vec![
        Ema::exponential(0.9),
        Ema {
            every: 3,
            start: Start::Zero,
            bias_correction: true,
            ..Ema::exponential(0.99)
        },
        Ema::power(0.1),
        Ema {
            exact: false,
            ..Ema::uniform()
        },
    ]
}

/// One rank of a training run that averages its share of every tensor: what it holds, if it is the first to hold it.
struct Rank {
    rank: usize,
    specs: BTreeMap<String, TensorSpec>,
    averages: Averages,
}

impl Rank {
    fn new(mesh: &str, rank: usize) -> Self {
        let specs = model(mesh);
        let share = |spec: &TensorSpec| match spec.replica(rank) {
            Some(replica) if replica.index == 0 => spec.pieces(rank),
            _ => Vec::new(),
        };
        let averaged = specs.iter().map(|(name, spec)| Averaged {
            name: name.clone(),
            spec: spec.clone(),
            pieces: share(spec),
        });
        let averages = Averages::new(rank, definitions(), averaged.collect()).unwrap();
        Self {
            rank,
            specs,
            averages,
        }
    }

    /// The rank of another launch that goes on from the newest checkpoint.
    fn resumed(store: &Arc<dyn Store>, mesh: &str, rank: usize) -> Self {
        let mut this = Self::new(mesh, rank);
        let checkpoint = latest(store);
        let anew = this
            .averages
            .resume(checkpoint.values(), OnChange::Refuse)
            .unwrap();
        assert!(anew.is_empty());
        let options = LoadOptions {
            strictness: Strictness::PARTIAL,
            ..LoadOptions::default()
        };
        checkpoint
            .load(this.averages.targets().unwrap(), &options)
            .unwrap();
        this
    }

    fn train(&self, step: u64) {
        if !self.averages.begin_update(step).unwrap() {
            return;
        }
        for (name, piece, begin) in self.averages.sources() {
            let shape = self.specs[name].shape();
            let whole = f32s(&weights(name, step, shape));
            self.averages
                .absorb(begin, &part(shape, piece, &whole))
                .unwrap();
        }
        self.averages.finish_update().unwrap();
    }

    fn save(&self, run: &Checkpointer, step: u64) {
        let weights = self.specs.iter().map(|(name, spec)| {
            let whole = f32s(&weights(name, step, spec.shape()));
            (name, spec, cut(spec, self.rank, &whole))
        });
        let weights: Vec<_> = weights.collect();
        let view = self.averages.view().unwrap();
        let mut state = State::new(self.rank);
        for (name, spec, bytes) in &weights {
            state.tensor(name, spec, bytes).unwrap();
        }
        view.add_to(&mut state).unwrap();
        run.save(step, &state, &SaveOptions::default())
            .unwrap()
            .wait()
            .unwrap();
    }
}

/// The elements of `piece` in a whole tensor of `f32`.
fn part(shape: &[usize], piece: &Piece, whole: &[u8]) -> Vec<u8> {
    let listed = Listed::new([(0, vec![piece.clone()])].into());
    let spec = TensorSpec::new(DType::F32, shape.to_vec(), listed).unwrap();
    cut(&spec, 0, whole)
}

/// Every rank of the mesh trains the steps and saves the last.
fn launch(store: &Arc<dyn Store>, mesh: &str, resume: bool, steps: std::ops::RangeInclusive<u64>) {
    let size = mesh.parse::<Mesh>().unwrap().max_rank() + 1;
    thread::scope(|scope| {
        for world in World::threads(size) {
            let steps = steps.clone();
            scope.spawn(move || {
                let rank = match resume {
                    true => Rank::resumed(store, mesh, world.rank()),
                    false => Rank::new(mesh, world.rank()),
                };
                steps.clone().for_each(|step| rank.train(step));
                let run = Checkpointer::with_options(store.clone(), world, quick());
                rank.save(&run, *steps.end());
            });
        }
    });
}

/// What arithmetic in `f64` gives for an average over `steps`.
fn reference(ema: &Ema, name: &str, shape: &[usize], steps: u64) -> Vec<f64> {
    let mut values = vec![0.0; shape.iter().product()];
    let absorbed = (1..=steps).filter(|step| step.is_multiple_of(ema.every));
    for (update, step) in (1..).zip(absorbed) {
        for (value, weight) in values.iter_mut().zip(weights(name, step, shape)) {
            *value += ema.weight(update) * (f64::from(weight) - *value);
        }
    }
    values
}

fn load_whole(checkpoint: &Checkpoint, name: &str, shape: &[usize]) -> Vec<f32> {
    let dims: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let whole = spec("x=1", &format!("f32[{}]", dims.join(", ")));
    let mut bytes = vec![0; 4 * shape.iter().product::<usize>()];
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    let target = Target::new(name, &whole, 0, &mut bytes).unwrap();
    checkpoint.load(vec![target], &options).unwrap();
    let elements = bytes.as_chunks().0.iter();
    elements.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[track_caller]
fn assert_close(values: &[f32], expected: &[f64], least: f64) {
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        let step = f64::from(value.abs().next_up() - value.abs());
        let error = (f64::from(*value) - expected).abs();
        assert!(error <= step.max(least), "{value} is not {expected}");
    }
}

fn assert_averages(store: &Arc<dyn Store>, steps: u64) {
    let checkpoint = latest(store);
    for ema in definitions() {
        for (name, spec) in model("x=1") {
            let stored = load_whole(&checkpoint, &stored_name(&ema.label, &name), spec.shape());
            let expected = reference(&ema, &name, spec.shape(), steps);
            // Plain `f32` keeps its precision only while nothing cancels.
            let least = if ema.exact { 1e-12 } else { 1e-6 };
            assert_close(&stored, &expected, least);
        }
    }
}

#[test]
fn averages_go_on_exactly_on_another_number_of_ranks() {
    let store = memory();
    launch(&store, "dp=2,tp=2", false, 1..=7);
    assert_averages(&store, 7);
    launch(&store, "tp=3", true, 8..=12);
    assert_averages(&store, 12);
    launch(&store, "dp=5", true, 13..=20);
    assert_averages(&store, 20);
}

#[test]
fn stopping_and_resuming_changes_no_bit() {
    let (once, twice) = (memory(), memory());
    launch(&once, "dp=2,tp=2", false, 1..=9);
    launch(&twice, "tp=3", false, 1..=4);
    launch(&twice, "dp=2,tp=2", true, 5..=9);
    for ema in definitions() {
        for (name, spec) in model("x=1") {
            let name = stored_name(&ema.label, &name);
            let load = |store| {
                load_whole(&latest(store), &name, spec.shape())
                    .into_iter()
                    .map(f32::to_bits)
            };
            assert!(load(&once).eq(load(&twice)), "{name}");
        }
    }
}
