//! Saves after the first: the plan is kept while nothing but bytes changes, and made anew when anything else does.

use crate::common::{memory, spec};
use cairn_checkpoint::{Checkpoint, Checkpointer, LoadOptions, SaveOptions, State, Target, World};
use cairn_sharding::TensorSpec;
use std::time::Duration;

/// A tensor of a state: its name, its spec, its bytes.
type Tensor<'a> = (&'a str, TensorSpec, &'a [u8]);

fn state<'a>(tensors: &[Tensor<'a>]) -> State<'a> {
    let mut state = State::new(0);
    for (name, spec, bytes) in tensors {
        state.tensor(name, spec, bytes).unwrap();
    }
    state
}

/// Saves `state` and checks that exactly these tensors come back.
fn save(run: &Checkpointer, step: u64, state: &State, expected: &[Tensor]) -> Duration {
    let saving = run.save(step, state, &SaveOptions::default()).unwrap();
    assert_eq!(saving.wait().unwrap().planning, saving.planning());
    assert_loads(&run.open(step).unwrap(), expected);
    saving.planning()
}

fn assert_loads(checkpoint: &Checkpoint, expected: &[Tensor]) {
    let mut loaded: Vec<Vec<u8>> = expected.iter().map(|(_, _, b)| vec![0; b.len()]).collect();
    let targets = expected
        .iter()
        .zip(&mut loaded)
        .map(|((name, spec, _), bytes)| Target::new(name, spec, 0, bytes).unwrap());
    let exactly = LoadOptions::default();
    checkpoint.load(targets.collect(), &exactly).unwrap();
    for ((name, _, bytes), loaded) in expected.iter().zip(loaded) {
        assert_eq!(*bytes, loaded, "`{name}`");
    }
}

fn run() -> Checkpointer {
    Checkpointer::new(memory(), World::single())
}

fn u8s(text: &str) -> TensorSpec {
    spec("single", text)
}

#[test]
fn an_outline_takes_the_memory_of_every_step() {
    let run = run();
    let spec = u8s("u8[4]");
    let first = [
        ("b", spec.clone(), &[1; 4][..]),
        ("a", spec.clone(), &[2; 4]),
    ];
    let one = state(&first);
    save(&run, 1, &one, &first);
    let outline = one.outline();
    for step in 2..5_u8 {
        let (b, a) = ([step; 4], [step + 100; 4]);
        // In the order in which they were added, not of names.
        let next = outline.state([&b[..], &a[..]]).unwrap();
        let expected = [("b", spec.clone(), &b[..]), ("a", spec.clone(), &a[..])];
        save(&run, u64::from(step), &next, &expected);
    }
}

#[test]
fn every_change_of_the_tensors_is_noticed() {
    let bytes = [7; 16];
    let (whole, half) = (&bytes[..], &bytes[..8]);
    let before = [("a", u8s("u8[16]"), whole), ("b", u8s("u8[2, 4]"), half)];
    let [a, b] = before.clone();
    let changes = [
        ("shape", vec![a.clone(), ("b", u8s("u8[4, 2]"), half)]),
        ("size", vec![a.clone(), ("b", u8s("u8[2, 8]"), &bytes[..])]),
        ("dtype", vec![a.clone(), ("b", u8s("i8[2, 4]"), half)]),
        ("name", vec![a.clone(), ("c", u8s("u8[2, 4]"), half)]),
        (
            "sharding",
            vec![a.clone(), ("b", spec("tp=1", "u8[2, 4@tp]"), half)],
        ),
        ("fewer", vec![b.clone()]),
        ("more", vec![a, b, ("c", u8s("u8[2, 4]"), half)]),
        ("none", vec![]),
    ];
    for (change, after) in changes {
        let run = run();
        save(&run, 1, &state(&before), &before);
        save(&run, 2, &state(&after), &after);
        let stored = run.open(2).unwrap();
        let layout = &stored.manifest().layout;
        for (name, spec, _) in &after {
            let found = layout.find(name).map(|index| layout.spec(index));
            assert_eq!(found, Some(spec), "{change}");
        }
        save(&run, 3, &state(&before), &before);
    }
}

#[test]
fn strides_that_change_are_noticed() {
    let (run, spec) = (run(), u8s("u8[2, 2]"));
    let bytes = [1, 2, 3, 4];
    for (step, strides, expected) in [(1, [2, 1], [1, 2, 3, 4]), (2, [1, 2], [1, 3, 2, 4])] {
        let mut state = State::new(0);
        state.strided_tensor("a", &spec, &bytes, &strides).unwrap();
        save(&run, step, &state, &[("a", spec.clone(), &expected)]);
    }
}

#[test]
fn tensors_that_begin_or_cease_to_share_memory_are_noticed() {
    let (run, spec) = (run(), u8s("u8[4]"));
    let tied = [9; 4];
    let (one, other) = ([1; 4], [2; 4]);
    let named = |a, b| [("a", spec.clone(), a), ("b", spec.clone(), b)];
    let first = state(&named(&tied[..], &tied[..]));
    let outline = first.outline();
    save(&run, 1, &first, &named(&tied, &tied));
    for (step, a, b, aliases) in [
        (2, &one, &other, 0),
        (3, &one, &one, 1),
        (4, &tied, &tied, 1),
        (5, &other, &one, 0),
    ] {
        let state = outline.state([&a[..], &b[..]]).unwrap();
        save(&run, step, &state, &named(a, b));
        let stored = run.open(step).unwrap();
        assert_eq!(
            stored.manifest().layout.aliases().len(),
            aliases,
            "step {step}"
        );
    }
}

#[test]
fn memory_that_does_not_fit_the_outline_is_refused() {
    let outline = state(&[("a", u8s("u8[4]"), &[1; 4]), ("b", u8s("u8[2]"), &[1; 2])]).outline();
    assert_eq!((outline.len(), outline.rank()), (2, 0));
    let reason = |memory: &[&[u8]]| {
        let refused = outline.state(memory.iter().copied());
        refused.unwrap_err().to_string()
    };
    assert!(reason(&[]).contains("2 tensors, but memory for 0"));
    assert!(reason(&[&[1; 4], &[1; 2], &[]]).contains("memory for 3"));
    assert!(reason(&[&[1; 4], &[1; 3]]).starts_with("`b` has 3 bytes"));
    assert!(reason(&[&[1; 2], &[1; 4]]).starts_with("`a` has 2 bytes"));
}

#[test]
fn a_state_that_grows_leaves_the_outline_it_came_from_as_it_was() {
    let (run, spec) = (run(), u8s("u8[2]"));
    let first = state(&[("a", spec.clone(), &[1; 2])]);
    let outline = first.outline();
    let mut grown = outline.state([&[3; 2][..]]).unwrap();
    grown.tensor("b", &spec, &[4; 2]).unwrap();
    assert!(grown.tensor("b", &spec, &[5; 2]).is_err(), "given twice");
    assert_eq!(outline.len(), 1);
    let expected = [("a", spec.clone(), &[3; 2][..]), ("b", spec, &[4; 2])];
    save(&run, 1, &grown, &expected);
}

#[test]
fn the_plan_of_a_repeated_save_costs_next_to_nothing() {
    let run = run();
    let spec = u8s("u8[8, 8]");
    let bytes = vec![5; 64 * 2000];
    let mut first = State::new(0);
    for (index, part) in bytes.chunks(64).enumerate() {
        first
            .tensor(&format!("layer.{index}"), &spec, part)
            .unwrap();
    }
    let planning = |step, state: &State| {
        let saving = run.save(step, state, &SaveOptions::default()).unwrap();
        saving.wait().unwrap().planning
    };
    let anew = planning(1, &first);
    let again = (2..6).map(|step| {
        let state = first.outline().state(bytes.chunks(64)).unwrap();
        planning(step, &state)
    });
    let again = again.min().unwrap();
    assert!(again * 5 < anew, "{again:?} against {anew:?}");
}
