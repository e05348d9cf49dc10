//! States that go on changing while they are captured: what is saved is always exactly one step.

use cairn_checkpoint::{
    Bytes, Checkpointer, Error, LoadOptions, Options, Overlap, SaveOptions, Saving, State, Target,
    Watch, World,
};
use cairn_device::testing::{Simulated, SimulatedTensor};
use cairn_device::{Memory, Stream};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_store::Memory as MemoryStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TRAINING: Stream = Stream(0);
const SIMULATED: &str = "simulated";

fn spec(len: usize) -> TensorSpec {
    TensorSpec::parse(&Mesh::single(), &format!("u8[{len}]")).unwrap()
}

fn run(options: Options) -> Checkpointer {
    Checkpointer::with_options(Arc::new(MemoryStore::new()), World::single(), options)
}

fn loaded(run: &Checkpointer, step: u64, name: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let target = Target::new(name, &spec(len), 0, &mut bytes).unwrap();
    let options = LoadOptions {
        strictness: cairn_checkpoint::Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    run.open(step)
        .unwrap()
        .load(vec![target], &options)
        .unwrap();
    bytes
}

fn save_tensors(
    run: &Checkpointer,
    step: u64,
    tensors: &[(SimulatedTensor, usize)],
    fenced: bool,
) -> Saving {
    let mut state = State::new(0);
    for (index, (tensor, len)) in tensors.iter().enumerate() {
        let memory = tensor.memory(TRAINING);
        let bytes = match fenced {
            true => Bytes::fenced(memory),
            false => Bytes::Shared(memory),
        };
        state
            .bytes(&format!("t{index}"), &spec(*len), bytes)
            .unwrap();
    }
    run.save(step, &state, &SaveOptions::default()).unwrap()
}

/// Trains on a simulated device, saves every step, and looks at every byte of every checkpoint.
fn train(seed: u64, options: Options, fenced: bool) {
    let device = Simulated::new(seed, Duration::from_micros(200));
    let lens = [3, 70_000, 300_000, 0, 17, 9 << 20];
    let tensors = lens.map(|len| (device.tensor(&vec![0; len]), len));
    let run = run(options);
    let steps = 4_u8;
    let mut saving: Option<Saving> = None;
    for step in 1..=steps {
        if let Some(saving) = &saving {
            saving.fence(&[(SIMULATED.to_string(), TRAINING)]).unwrap();
        }
        tensors
            .iter()
            .for_each(|(tensor, _)| tensor.fill(TRAINING, step));
        saving = Some(save_tensors(&run, u64::from(step), &tensors, fenced));
        if !fenced {
            // Nobody fences: the next step may begin at once.
            saving = None;
        }
    }
    run.wait().unwrap();
    for step in 1..=steps {
        for (index, len) in lens.iter().enumerate() {
            let bytes = loaded(&run, u64::from(step), &format!("t{index}"), *len);
            assert!(
                bytes.iter().all(|byte| *byte == step),
                "step {step}, tensor {index}"
            );
        }
    }
}

#[test]
fn a_fenced_state_on_a_device_is_saved_as_it_was() {
    (0..4).for_each(|seed| train(seed, Options::default(), true));
}

#[test]
fn a_state_that_nobody_fences_is_saved_as_it_was() {
    (0..4).for_each(|seed| train(seed, Options::default(), false));
}

#[test]
fn scratch_memory_changes_nothing_but_the_time() {
    for scratch_bytes in [1 << 20, 64 << 20] {
        let options = Options {
            scratch_bytes,
            ..Options::default()
        };
        train(5, options.clone(), true);
        train(6, options, false);
    }
}

#[test]
fn a_ring_of_one_buffer_is_enough() {
    let options = Options {
        staging_bytes: Some(8 << 20),
        ..Options::default()
    };
    train(7, options.clone(), true);
    train(8, options, false);
}

/// One thread has no chunk left to fill and another no buffer to fill: whoever is left passes on what is on its way.
#[test]
fn a_ring_smaller_than_what_cannot_wait_is_passed_from_thread_to_thread() {
    const LEN: usize = (16 << 20) + 5;
    for (buffers, capture_threads) in [(1, 4), (2, 3), (2, 4)] {
        let options = Options {
            staging_bytes: Some(buffers * (8 << 20)),
            capture_threads,
            ..Options::default()
        };
        let device = Simulated::new(buffers, Duration::from_micros(500));
        // What finds no room in scratch memory is copied before `save` returns.
        device.limit_scratch(0);
        let tensors = [5, LEN].map(|len| (device.tensor(&vec![1; len]), len));
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let run = run(options);
            for step in 1..=2 {
                let saving = save_tensors(&run, step, &tensors, false);
                let changed = u8::try_from(step).unwrap() + 1;
                for (tensor, _) in &tensors {
                    tensor.fill(TRAINING, changed);
                }
                saving.wait().unwrap();
            }
            let bytes = [1, 2].map(|step| loaded(&run, step, "t1", LEN));
            let _ = done.send(bytes);
        });
        let bytes = ended.recv_timeout(Duration::from_secs(60));
        let bytes = bytes.expect("a save waits for a buffer that nobody gives back");
        for (step, bytes) in (1..).zip(bytes) {
            assert!(bytes.iter().all(|byte| *byte == step), "step {step}");
        }
    }
}

#[test]
fn saves_that_queue_are_each_their_own_step() {
    let options = Options {
        overlap: Overlap::Queue(3),
        ..Options::default()
    };
    train(9, options.clone(), true);
    train(10, options, false);
}

#[test]
fn memory_that_cannot_be_pinned_is_used_and_the_report_says_so() {
    let device = Simulated::new(1, Duration::ZERO);
    device.refuse_pinning();
    let tensors = [(device.tensor(&[7; 100]), 100)];
    let run = run(Options::default());
    save_tensors(&run, 1, &tensors, true).wait().unwrap();
    assert_eq!(loaded(&run, 1, "t0", 100), [7; 100]);
    let report = save_tensors(&run, 2, &tensors, true).wait().unwrap();
    let notes = report.timeline.notes.join("\n");
    assert!(notes.contains("could not be pinned"), "{notes}");
}

#[test]
fn a_device_without_room_for_scratch_still_saves_what_was_there() {
    let device = Simulated::new(3, Duration::from_micros(200));
    device.limit_scratch(10);
    let tensors = [(device.tensor(&[7; 1000]), 1000)];
    let run = run(Options::default());
    let saving = save_tensors(&run, 1, &tensors, false);
    tensors[0].0.fill(TRAINING, 8);
    let report = saving.wait().unwrap();
    assert_eq!(loaded(&run, 1, "t0", 1000), [7; 1000]);
    assert!(report.timeline.notes[0].contains("without scratch memory"));
}

#[test]
fn a_copy_that_fails_fails_the_save_and_lets_the_fence_go() {
    let device = Simulated::new(3, Duration::from_micros(200));
    device.fail_copies();
    let tensors = [(device.tensor(&[7; 1000]), 1000)];
    let run = run(Options::default());
    let saving = save_tensors(&run, 1, &tensors, true);
    saving.fence(&[(SIMULATED.to_string(), TRAINING)]).unwrap();
    assert!(matches!(*saving.wait().unwrap_err(), Error::Capture { .. }));
    assert!(run.steps().unwrap().is_empty());
}

#[test]
fn memory_on_the_host_is_captured_behind_the_caller() {
    let bytes: Arc<[u8]> = vec![5; 20 << 20].into();
    let run = run(Options::default());
    let mut state = State::new(0);
    let memory = Memory::shared(bytes.clone());
    state
        .bytes("w", &spec(bytes.len()), Bytes::fenced(memory))
        .unwrap();
    let saving = run.save(1, &state, &SaveOptions::default()).unwrap();
    saving.fence(&[]).unwrap();
    saving.wait_captured();
    assert!(saving.is_captured());
    saving.wait().unwrap();
    assert!(
        loaded(&run, 1, "w", bytes.len())
            .iter()
            .all(|byte| *byte == 5)
    );
    // Nothing keeps the memory once it is captured.
    drop(state);
    assert_eq!(Arc::strong_count(&bytes), 1);
}

#[test]
fn a_state_changed_before_its_fence_is_not_committed_and_the_error_names_the_tensors() {
    for fence_first in [false, true] {
        let run = run(Options::default());
        let mut state = State::new(0);
        let memory = Memory::shared(vec![5; 100].into());
        state.bytes("w", &spec(100), Bytes::fenced(memory)).unwrap();
        state.watch(Watch::new(|| vec!["w".to_string()]));
        let saving = run.save(1, &state, &SaveOptions::default()).unwrap();
        if fence_first {
            saving.fence(&[]).unwrap();
        }
        let error = saving.wait().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the state was changed while it was being captured: `w`"
        );
        assert!(run.steps().unwrap().is_empty());
        // The next save is none the worse for it.
        let mut state = State::new(0);
        state.tensor("w", &spec(3), &[1, 2, 3]).unwrap();
        run.save(1, &state, &SaveOptions::default())
            .unwrap()
            .wait()
            .unwrap();
    }
}

#[test]
fn the_watch_is_asked_once_and_not_after_the_fence() {
    let changed = Arc::new(AtomicBool::new(false));
    let run = run(Options::default());
    let mut state = State::new(0);
    let memory = Memory::shared(vec![5; 100].into());
    state.bytes("w", &spec(100), Bytes::fenced(memory)).unwrap();
    let now = changed.clone();
    state.watch(Watch::new(move || {
        now.load(Ordering::SeqCst)
            .then(|| "w".to_string())
            .into_iter()
            .collect()
    }));
    let saving = run.save(1, &state, &SaveOptions::default()).unwrap();
    saving.fence(&[]).unwrap();
    changed.store(true, Ordering::SeqCst);
    saving.wait().unwrap();
}

#[test]
fn reading_twice_finds_a_state_that_changes_without_anybody_telling() {
    let options = Options {
        read_twice: true,
        ..Options::default()
    };
    let run = run(options.clone());
    let device = Simulated::new(1, Duration::from_micros(50));
    let quiet = device.tensor(&[1; 300_000]);
    let noisy = device.tensor(&vec![1; 300_000]);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (noisy, stop) = (noisy.clone(), stop.clone());
        move || {
            let mut value = 0_u8;
            while !stop.load(Ordering::SeqCst) {
                value = value.wrapping_add(1);
                noisy.fill(Stream(9), value);
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
    let tensors = [(quiet, 300_000), (noisy, 300_000)];
    // On a busy machine nobody may write between two reads: the next save finds it then.
    let save = |step| save_tensors(&run, step, &tensors, true).wait();
    let found = (1..1000).find_map(|step| save(step).err());
    stop.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    assert_eq!(
        found.unwrap().to_string(),
        "the state was changed while it was being captured: `t1`"
    );
    save_tensors(&run, 1000, &tensors[..1], true)
        .wait()
        .unwrap();
}

#[test]
fn a_cancelled_save_commits_nothing_and_gives_its_memory_back() {
    let options = Options {
        staging_bytes: Some(16 << 20),
        pace: Some(Arc::new(cairn_checkpoint::Pace::new(32 << 20))),
        ..Options::default()
    };
    let run = run(options);
    let memory = Memory::shared(vec![5; 64 << 20].into());
    let mut state = State::new(0);
    state
        .bytes("w", &spec(64 << 20), Bytes::fenced(memory))
        .unwrap();
    for step in 0..3 {
        let saving = run.save(step, &state, &SaveOptions::default()).unwrap();
        saving.cancel();
        assert!(matches!(*saving.wait().unwrap_err(), Error::Cancelled));
    }
    assert!(run.steps().unwrap().is_empty());
    assert!(run.staging_bytes() <= 16 << 20);
}

#[test]
fn a_save_that_would_wait_is_skipped_if_asked() {
    let options = Options {
        overlap: Overlap::Skip,
        pace: Some(Arc::new(cairn_checkpoint::Pace::new(64 << 20))),
        ..Options::default()
    };
    let run = run(options);
    let bytes = vec![5; 32 << 20];
    let mut state = State::new(0);
    state.tensor("w", &spec(32 << 20), &bytes).unwrap();
    let first = run.save(1, &state, &SaveOptions::default()).unwrap();
    let second = run.save(2, &state, &SaveOptions::default()).unwrap();
    assert!(second.is_skipped());
    let error = second.wait().unwrap_err();
    assert_eq!(
        error.to_string(),
        "step 2 was skipped: step 1 is still being written"
    );
    first.wait().unwrap();
    run.save(3, &state, &SaveOptions::default())
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(run.steps().unwrap(), [1, 3]);
}

#[test]
fn tensors_that_do_not_change_from_save_to_save_are_named() {
    let run = run(Options::default());
    let (frozen, mut moving) = (vec![1; 300_000], vec![1; 300_000]);
    for step in 0..3 {
        moving.fill(step);
        let mut state = State::new(0);
        state.tensor("frozen", &spec(300_000), &frozen).unwrap();
        state.tensor("moving", &spec(300_000), &moving).unwrap();
        let report = run
            .save(u64::from(step), &state, &SaveOptions::default())
            .unwrap();
        let report = report.wait().unwrap();
        let expected: &[&str] = if step == 0 { &[] } else { &["frozen"] };
        assert_eq!(report.unchanged, expected);
    }
}

#[test]
fn memory_is_made_ready_before_the_first_save_and_freed_on_demand() {
    let run = run(Options::default());
    let bytes = vec![1; 20 << 20];
    let mut state = State::new(0);
    state.tensor("w", &spec(20 << 20), &bytes).unwrap();
    run.prepare(&state).unwrap();
    assert_eq!(run.staging_bytes(), 24 << 20);
    run.save(1, &state, &SaveOptions::default())
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(run.staging_bytes(), 24 << 20);
    run.release();
    assert_eq!(run.staging_bytes(), 0);
}

#[test]
fn a_step_that_one_rank_skips_is_skipped_by_all() {
    let store: Arc<dyn cairn_store::Store> = Arc::new(MemoryStore::new());
    let options = Options {
        overlap: Overlap::Skip,
        ..Options::default()
    };
    let rank = |rank| {
        let world = World::new(rank, 2, "skipping").unwrap().unique();
        Checkpointer::with_options(store.clone(), world, options.clone())
    };
    let spec = TensorSpec::parse(&Mesh::new([("dp", 2)]).unwrap(), "u8[4096]").unwrap();
    let bytes = [7; 4096];
    let save = |run: &Checkpointer, rank, step| {
        let mut state = State::new(rank);
        state.tensor("w", &spec, &bytes).unwrap();
        run.save(step, &state, &SaveOptions::default()).unwrap()
    };
    let (first, second) = (rank(0), rank(1));
    // Step 1 of rank 1 is not done before rank 0 has saved it, too.
    let waiting = save(&second, 1, 1);
    assert!(save(&second, 1, 2).is_skipped());
    save(&first, 0, 1).wait().unwrap();
    waiting.wait().unwrap();
    let skipped = save(&first, 0, 2);
    assert!(matches!(
        *skipped.wait().unwrap_err(),
        Error::Skipped { step: 2, .. }
    ));
    // It was wanted: the next save does not complain of it.
    let last = [save(&first, 0, 3), save(&second, 1, 3)];
    last.iter().for_each(|saving| drop(saving.wait().unwrap()));
    assert_eq!(first.steps().unwrap(), [1, 3]);
}

/// Two optimizers, of which the second never waits: the first one's tensors are copied first, and may change before the others are.
#[test]
fn what_changes_in_an_earlier_turn_is_copied_first_and_fenced_alone() {
    for seed in 0..4 {
        let device = Simulated::new(seed, Duration::from_micros(200));
        let lens = [9 << 20, 5, 20 << 20, 70_000, 8 << 20];
        // In the file they lie in the order of their names; their turns are another one.
        let turns = [2, 0, 1, 2, 0];
        let tensors = lens.map(|len| device.tensor(&vec![0; len]));
        let run = run(Options::default());
        let streams = [(SIMULATED.to_string(), TRAINING)];
        let mut saving: Option<Saving> = None;
        for step in 1..=4_u8 {
            for turn in 0..3 {
                if let Some(saving) = &saving {
                    saving.fence_turn(turn, &streams).unwrap();
                }
                let own = tensors
                    .iter()
                    .zip(turns)
                    .filter(|(_, other)| *other == turn);
                own.for_each(|(tensor, _)| tensor.fill(TRAINING, step));
            }
            let mut state = State::new(0);
            for (index, (tensor, len)) in tensors.iter().zip(lens).enumerate() {
                let bytes = Bytes::Fenced(tensor.memory(TRAINING), turns[index]);
                state
                    .bytes(&format!("t{index}"), &spec(len), bytes)
                    .unwrap();
            }
            saving = Some(
                run.save(u64::from(step), &state, &SaveOptions::default())
                    .unwrap(),
            );
        }
        run.wait().unwrap();
        for step in 1..=4_u8 {
            for (index, len) in lens.iter().enumerate() {
                let bytes = loaded(&run, u64::from(step), &format!("t{index}"), *len);
                assert!(
                    bytes.iter().all(|byte| *byte == step),
                    "step {step}, tensor {index}"
                );
            }
        }
    }
}

/// The first turn may change as soon as its own copy is made, although there is no memory yet for the rest.
#[test]
fn a_fence_of_one_turn_does_not_wait_for_the_others() {
    let store = Arc::new(MemoryStore::new());
    let options = Options {
        staging_bytes: Some(8 << 20),
        ..Options::default()
    };
    let run = Checkpointer::with_options(store, World::single(), options);
    let promise = cairn_checkpoint::Promise::new(8 << 20);
    let mut state = State::new(0);
    let fenced = |turn| Bytes::Fenced(Memory::shared(vec![1; 8 << 20].into()), turn);
    state.bytes("late", &spec(8 << 20), fenced(7)).unwrap();
    state.bytes("now", &spec(8 << 20), fenced(3)).unwrap();
    state
        .bytes(
            "other",
            &spec(16 << 20),
            Bytes::Fenced(Memory::shared(vec![2; 16 << 20].into()), 9),
        )
        .unwrap();
    let promised = Bytes::Promised(promise.clone());
    state.bytes("promised", &spec(8 << 20), promised).unwrap();
    let saving = run.save(1, &state, &SaveOptions::default()).unwrap();
    // The last chunk of the third turn has promised bytes, so that turn is still to come.
    saving.fence_turn(3, &[]).unwrap();
    saving.fence_turn(7, &[]).unwrap();
    assert!(!saving.is_captured());
    promise.keep(Ok(Memory::shared(vec![3; 8 << 20].into())));
    saving.wait().unwrap();
    assert_eq!(loaded(&run, 1, "promised", 8 << 20), vec![3; 8 << 20]);
}

/// A tensor whose turn has not come is watched although the turn of another one has.
#[test]
fn a_change_before_its_turn_is_an_error_and_one_in_its_turn_is_none() {
    for (changed, is_torn) in [("first", false), ("next", true)] {
        let run = run(Options::default());
        let memory = || Memory::shared(vec![1; 100].into());
        let promise = cairn_checkpoint::Promise::new(100);
        let mut state = State::new(0);
        state
            .bytes("first", &spec(100), Bytes::Fenced(memory(), 0))
            .unwrap();
        state
            .bytes("next", &spec(100), Bytes::Fenced(memory(), 1))
            .unwrap();
        let rest = Memory::shared(vec![1; 16 << 20].into());
        state
            .bytes("other", &spec(16 << 20), Bytes::Fenced(rest, 2))
            .unwrap();
        state
            .bytes("promised", &spec(100), Bytes::Promised(promise.clone()))
            .unwrap();
        let dirty = Arc::new(AtomicBool::new(false));
        let seen = dirty.clone();
        state.watch(Watch::new(move || {
            let names = [changed.to_string()];
            names
                .into_iter()
                .filter(|_| seen.load(Ordering::SeqCst))
                .collect()
        }));
        let saving = run.save(1, &state, &SaveOptions::default()).unwrap();
        saving.fence_turn(0, &[]).unwrap();
        dirty.store(true, Ordering::SeqCst);
        promise.keep(Ok(memory()));
        let result = saving.wait();
        let torn = matches!(result.as_ref().map_err(|error| error.as_ref()), Err(Error::Torn { names }) if names == &["next"]);
        assert_eq!(torn, is_torn, "{changed}: {result:?}");
    }
}

/// Two names of the same memory, whose turns differ: the first fence waits for both.
#[test]
fn memory_with_two_names_changes_in_the_earlier_turn() {
    for turns in [[0, 1], [1, 0]] {
        let device = Simulated::new(3, Duration::from_micros(200));
        let (tensor, large) = (device.tensor(&[1; 100]), device.tensor(&vec![1; 9 << 20]));
        let run = run(Options::default());
        let mut state = State::new(0);
        for (name, turn) in ["one", "two"].into_iter().zip(turns) {
            let bytes = Bytes::Fenced(tensor.memory(TRAINING), turn);
            state.bytes(name, &spec(100), bytes).unwrap();
        }
        let bytes = Bytes::Fenced(large.memory(TRAINING), 1);
        state.bytes("large", &spec(9 << 20), bytes).unwrap();
        let saving = run.save(1, &state, &SaveOptions::default()).unwrap();
        let streams = [(SIMULATED.to_string(), TRAINING)];
        saving.fence_turn(0, &streams).unwrap();
        tensor.fill(TRAINING, 2);
        saving.wait().unwrap();
        assert_eq!(loaded(&run, 1, "two", 100), [1; 100]);
    }
}
