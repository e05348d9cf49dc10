//! Averages across saves, resumes and layouts, and those worked out from stored steps. The reference is arithmetic in `f64`.

use crate::common::{cut, f32s, latest, memory, quick, spec};
use cairn_checkpoint::ema::{
    AverageStep, Averaged, Averages, Ema, OnChange, Start, average_of, averaged, post_hoc,
    stored_name,
};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, LoadOptions, ModelSource, Pattern, RewriteOptions, SaveOptions,
    Source, State, Strictness, Target, World, export_hf, load,
};
use cairn_sharding::{Listed, Mesh, Piece, Region, TensorSpec};
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

fn load_f32(source: &dyn Source, name: &str, shape: &[usize]) -> Vec<f32> {
    let dims: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let whole = spec("x=1", &format!("f32[{}]", dims.join(", ")));
    let mut bytes = vec![0; 4 * shape.iter().product::<usize>()];
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    let target = Target::new(name, &whole, 0, &mut bytes).unwrap();
    load(source, vec![target], &options).unwrap();
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
            let stored = load_f32(&checkpoint, &stored_name(&ema.label, &name), spec.shape());
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
                load_f32(&latest(store), &name, spec.shape())
                    .into_iter()
                    .map(f32::to_bits)
            };
            assert!(load(&once).eq(load(&twice)), "{name}");
        }
    }
}

/// A run whose every step is stored, with its averages.
fn stored_run(steps: u64) -> Arc<dyn Store> {
    let store = memory();
    launch(&store, "dp=2,tp=2", false, 1..=1);
    (2..=steps).for_each(|step| launch(&store, "dp=2,tp=2", true, step..=step));
    store
}

fn step_of(store: &Arc<dyn Store>, step: u64) -> AverageStep {
    AverageStep {
        name: step.to_string(),
        source: Arc::new(Checkpoint::open(store.clone(), step).unwrap()),
    }
}

/// Exports everything of a source, and loads one tensor of what was written.
fn exported(source: &dyn Source, name: &str, shape: &[usize]) -> Vec<f32> {
    let target = memory();
    let names = source.names();
    export_hf(source, &target, &names, 1 << 20, &RewriteOptions::default()).unwrap();
    let model = cairn_formats::open(target.as_ref()).unwrap();
    load_f32(&ModelSource::new(target, model), name, shape)
}

#[test]
fn an_average_worked_out_later_is_the_one_kept_while_training() {
    let store = stored_run(12);
    for ema in definitions() {
        let kept = averaged(
            step_of(&store, 12).source,
            latest(&store).values(),
            &ema.label,
        )
        .unwrap();
        let steps = (1..=12).filter(|step| step % ema.every == 0);
        let steps = steps.map(|step| step_of(&store, step)).collect();
        let later = average_of(&ema, steps).unwrap();
        assert_eq!(kept.names(), ["embed", "empty", "flat", "scale"]);
        assert_eq!(kept.names(), later.names());
        for (name, spec) in model("x=1") {
            let bits = |source| {
                exported(source, &name, spec.shape())
                    .into_iter()
                    .map(f32::to_bits)
            };
            assert!(bits(&kept).eq(bits(&later)), "{name} of {ema}");
        }
    }
}

#[test]
fn a_corrected_average_is_exported_corrected() {
    let store = stored_run(6);
    let kept = averaged(step_of(&store, 6).source, latest(&store).values(), "0.99").unwrap();
    let first = weights("flat", 3, &[7, 5]);
    let second = weights("flat", 6, &[7, 5]);
    let pairs = first.iter().zip(&second);
    let expected: Vec<f64> = pairs
        .map(|(first, second)| (0.99 * f64::from(*first) + f64::from(*second)) / 1.99)
        .collect();
    assert_close(&exported(&kept, "flat", &[7, 5]), &expected, 1e-12);
}

#[test]
fn averages_that_are_not_there_are_named() {
    let store = stored_run(1);
    let source = || step_of(&store, 1).source;
    let error = averaged(source(), latest(&store).values(), "0.98")
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "there is no average `0.98` in the checkpoint"
    );
    assert!(error.hint().unwrap().contains("`power-0.1`"));
    let never = averaged(source(), latest(&store).values(), "0.99")
        .err()
        .unwrap();
    assert_eq!(never.to_string(), "the average `0.99` was never updated");
    let none = average_of(&Ema::uniform(), Vec::new()).err().unwrap();
    assert_eq!(none.to_string(), "the average `uniform` is over no steps");
    let names = Ema {
        include: vec![Pattern::new("nothing.*")],
        ..Ema::uniform()
    };
    let none = average_of(&names, vec![step_of(&store, 1)]).err().unwrap();
    assert!(none.to_string().contains("is of no tensor"));
}

#[test]
fn damage_under_an_average_is_reported_as_damage() {
    let store = stored_run(2);
    let key = Checkpoint::open(store.clone(), 1).unwrap().data_key(0);
    let mut bytes = store.get(&key).unwrap();
    let middle = bytes.len() - 8;
    bytes[middle] ^= 1;
    store
        .put(&key, &bytes, cairn_store::PutMode::Replace)
        .unwrap();
    let steps = vec![step_of(&store, 1), step_of(&store, 2)];
    let source = average_of(&Ema::uniform(), steps).unwrap();
    let names = source.names();
    let error = export_hf(
        &source,
        &memory(),
        &names,
        1 << 20,
        &RewriteOptions::default(),
    );
    assert!(error.unwrap_err().is_damage());
}

#[test]
fn a_width_that_was_not_kept_is_made_from_those_that_were() {
    let kept = [0.05, 0.1, 0.2];
    let store = memory();
    let spec = spec("x=1", "f32[16]");
    let mut tensors = Vec::new();
    for ema in kept.map(Ema::power) {
        let whole = vec![Piece::whole(Region::whole(&[16]))];
        let averaged = Averaged {
            name: "w".into(),
            spec: spec.clone(),
            pieces: whole,
        };
        tensors.push(Averages::new(0, vec![ema], vec![averaged]).unwrap());
    }
    let value = |step: u64| f32s(&weights("w", step, &[16]));
    let run = Checkpointer::with_options(store.clone(), World::single(), quick());
    for step in 1..=400 {
        for averages in &tensors {
            assert!(averages.begin_update(step).unwrap());
            averages.absorb(0, &value(step)).unwrap();
            averages.finish_update().unwrap();
        }
        if step % 50 == 0 {
            let (views, weights): (Vec<_>, _) = (
                tensors.iter().map(|a| a.view().unwrap()).collect(),
                value(step),
            );
            let mut state = State::new(0);
            state.tensor("w", &spec, &weights).unwrap();
            views
                .iter()
                .for_each(|view| view.add_to(&mut state).unwrap());
            run.save(step, &state, &SaveOptions::default())
                .unwrap()
                .wait()
                .unwrap();
        }
    }
    let steps = || {
        (50..=400).step_by(50).map(|step| {
            let values = Checkpoint::open(store.clone(), step)
                .unwrap()
                .values()
                .clone();
            (step_of(&store, step), values)
        })
    };
    for sigma in [0.07, 0.15] {
        let made = post_hoc(sigma, steps().collect()).unwrap();
        assert!(made.error < 0.01, "{}", made.error);
        assert_eq!(made.terms.len(), 24);
        let expected = reference(&Ema::power(sigma), "w", &[16], 400);
        for (value, expected) in exported(&made.source, "w", &[16]).into_iter().zip(expected) {
            assert!(
                (f64::from(value) - expected).abs() < 0.01,
                "{value} is not {expected}"
            );
        }
    }
    let alone = post_hoc(0.07, Vec::new()).err().unwrap();
    assert_eq!(
        alone.to_string(),
        "the average `power-0.07` needs two or more stored power averages, and there are 0"
    );
}
