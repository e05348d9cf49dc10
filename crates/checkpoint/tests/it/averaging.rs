//! Averages of a state that goes on changing: each update sees exactly one step, and saves hold exactly one update.

use cairn_checkpoint::ema::{Ema, OnChange};
use cairn_checkpoint::{
    Averaging, Bytes, Checkpointer, LoadOptions, Options, SaveOptions, State, Strictness, World,
};
use cairn_device::testing::Simulated;
use cairn_device::{Memory, Stream};
use cairn_sharding::{Mesh, TensorSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const TRAINING: Stream = Stream(0);

fn spec(text: &str) -> TensorSpec {
    TensorSpec::parse(&Mesh::single(), text).unwrap()
}

fn run(options: Options) -> Checkpointer {
    let store = Arc::new(cairn_store::Memory::new());
    Checkpointer::with_options(store, World::single(), options)
}

fn own(names: &[&str]) -> BTreeMap<String, String> {
    let pair = |name: &&str| ((*name).to_string(), (*name).to_string());
    names.iter().map(pair).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (chunks, _) = bytes.as_chunks::<4>();
    chunks
        .iter()
        .map(|chunk| f32::from_le_bytes(*chunk))
        .collect()
}

/// What a checkpoint has of the average of `w`.
fn average_of(run: &Checkpointer, step: u64) -> Vec<f32> {
    let opened = run.open(step).unwrap();
    let definitions = vec![Ema::exponential(0.9)];
    let state = state_of(&[], &[0.0; LEN]);
    let mut loaded = Averaging::new(
        &World::single(),
        &state.outline(),
        definitions,
        &own(&["w"]),
    )
    .unwrap();
    let averages = loaded.averages_mut().unwrap();
    averages.resume(opened.values(), OnChange::Refuse).unwrap();
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    opened.load(averages.targets().unwrap(), &options).unwrap();
    let view = averages.view().unwrap();
    let tensors = view.tensors();
    floats(
        tensors
            .iter()
            .find(|(name, _, _)| name == "ema/0.9/w")
            .unwrap()
            .2,
    )
}

const LEN: usize = 3_000_001;

/// A state with an odd tensor before `w`, so that nothing is aligned by chance.
fn state_of(odd: &[u8], weights: &[f32]) -> State<'static> {
    let bytes: Vec<u8> = weights
        .iter()
        .flat_map(|weight| weight.to_le_bytes())
        .collect();
    let mut state = State::new(0);
    let odd = if odd.is_empty() {
        vec![0; 6]
    } else {
        odd.to_vec()
    };
    state
        .bytes(
            "a",
            &spec("bf16[3]"),
            Bytes::fenced(Memory::shared(odd.into())),
        )
        .unwrap();
    let memory = Memory::shared(bytes.into());
    state
        .bytes("w", &spec(&format!("f32[{LEN}]")), Bytes::fenced(memory))
        .unwrap();
    state
}

#[test]
fn averages_are_within_one_unit_of_a_reference_and_saved_as_they_were() {
    for staging_bytes in [None, Some(8 << 20)] {
        let run = run(Options {
            staging_bytes,
            ..Options::default()
        });
        let mut averaging: Option<Arc<Averaging>> = None;
        let mut reference = vec![0.0_f64; LEN];
        let mut expected = BTreeMap::new();
        for step in 1..=6_u64 {
            let weights: Vec<f32> = (0..LEN)
                .map(|i| (i as f32 * 0.37 + step as f32).sin())
                .collect();
            let state = state_of(&[], &weights);
            let averaging = averaging.get_or_insert_with(|| {
                let definitions = vec![Ema::exponential(0.9), Ema::exponential(0.5)];
                let of = own(&["a", "w"]);
                Arc::new(
                    Averaging::new(&World::single(), &state.outline(), definitions, &of).unwrap(),
                )
            });
            let update = run.average(step, &state, averaging).unwrap();
            update.as_ref().unwrap().fence(&[]).unwrap();
            let share = if step == 1 { 1.0 } else { 1.0 - 0.9 };
            for (mean, weight) in reference.iter_mut().zip(&weights) {
                *mean += share * (f64::from(*weight) - *mean);
            }
            if step % 2 == 0 {
                let mut saved = state.clone();
                averaging.add_to(&mut saved, update).unwrap();
                run.save(step, &saved, &SaveOptions::default()).unwrap();
                expected.insert(step, reference.clone());
            }
        }
        run.wait().unwrap();
        for (step, reference) in expected {
            let found = average_of(&run, step);
            for (found, reference) in found.iter().zip(&reference) {
                let unit = f64::from(found.abs().next_up() - found.abs());
                assert!((f64::from(*found) - reference).abs() <= unit, "step {step}");
            }
        }
    }
}

#[test]
fn an_update_sees_one_step_of_a_state_on_a_device() {
    for seed in 0..4 {
        let device = Simulated::new(seed, Duration::from_micros(200));
        let len = 2_000_000;
        let tensor = device.tensor(&vec![0; 2 * len]);
        let run = run(Options::default());
        let mut averaging: Option<Arc<Averaging>> = None;
        // As bf16, a step fills the tensor with one value.
        for step in [0x3f_u8, 0x40, 0x41] {
            tensor.fill(TRAINING, step);
            let mut state = State::new(0);
            let memory = Bytes::fenced(tensor.memory(TRAINING));
            state
                .bytes("w", &spec(&format!("bf16[{len}]")), memory)
                .unwrap();
            let averaging = averaging.get_or_insert_with(|| {
                let definitions = vec![Ema::exponential(0.0)];
                Arc::new(
                    Averaging::new(
                        &World::single(),
                        &state.outline(),
                        definitions,
                        &own(&["w"]),
                    )
                    .unwrap(),
                )
            });
            let update = run
                .average(u64::from(step), &state, averaging)
                .unwrap()
                .unwrap();
            update.fence(&[("simulated".into(), TRAINING)]).unwrap();
            tensor.fill(TRAINING, 0);
            update.wait().unwrap();
            let value = f32::from_bits(u32::from_be_bytes([step, step, 0, 0]));
            let view = averaging.averages().view().unwrap();
            assert!(
                floats(view.tensors()[0].2)
                    .iter()
                    .all(|found| *found == value)
            );
        }
    }
}

#[test]
fn a_step_that_is_not_due_costs_nothing_and_other_states_are_refused() {
    let run = run(Options::default());
    let state = state_of(&[], &vec![1.0; LEN]);
    let every = Ema {
        every: 10,
        ..Ema::exponential(0.9)
    };
    let averaging = Averaging::new(
        &World::single(),
        &state.outline(),
        vec![every],
        &own(&["w"]),
    );
    let averaging = Arc::new(averaging.unwrap());
    assert!(run.average(5, &state, &averaging).unwrap().is_none());
    assert!(run.average(10, &state, &averaging).unwrap().is_some());
    let mut other = State::new(0);
    other
        .bytes(
            "w",
            &spec("u8[1]"),
            Bytes::fenced(Memory::shared(Arc::from([1]))),
        )
        .unwrap();
    assert!(run.average(20, &other, &averaging).is_err());
    let unknown = Averaging::new(&World::single(), &state.outline(), vec![], &own(&["x"]));
    assert!(
        unknown
            .unwrap_err()
            .to_string()
            .contains("`x` is to be averaged")
    );
}

/// A save is promised the averages of an update that has hardly begun: neither may wait for the other.
#[test]
fn updates_and_saves_in_quick_succession_do_not_wait_for_each_other() {
    let run = run(Options::default());
    let spec = spec("f32[4]");
    let mut averaging: Option<Arc<Averaging>> = None;
    for step in 1..=300_u64 {
        let mut state = State::new(0);
        let bytes = [0; 16];
        state.tensor("w", &spec, &bytes).unwrap();
        let averaging = averaging.get_or_insert_with(|| {
            let made = Averaging::new(
                &World::single(),
                &state.outline(),
                vec![Ema::exponential(0.5)],
                &own(&["w"]),
            );
            Arc::new(made.unwrap())
        });
        let update = run.average(step, &state, averaging).unwrap();
        averaging.add_to(&mut state, update).unwrap();
        run.save(step, &state, &SaveOptions::default()).unwrap();
    }
    run.wait().unwrap();
    assert_eq!(run.steps().unwrap().len(), 300);
}
