//! The threads of saves in thousands of orders: whatever the order, a committed step is exactly one step.
//!
//! With the feature `shuttle` the locks, channels and threads of the crate are shuttle's, which decides who runs next at every one
//! of them, and a chunk is one block of 64 KiB, so that a small state goes through all of capture, ring and writers. A deadlock is a
//! failure, too. What fails prints a schedule for `shuttle::replay`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use cairn_checkpoint::{
    Bytes, Checkpointer, Error, LoadOptions, Options, Overlap, SaveOptions, Saving, State, Target,
    Watch, World, step_folder,
};
use cairn_device::testing::SharedBytes;
use cairn_sharding::{Mesh, TensorSpec};
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use cairn_store::{Memory, Store};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicU8, Ordering};
use shuttle::thread;
use shuttle::{Config, Runner};
use std::sync::Arc;

/// Orders tried of each scenario, by each scheduler.
const SCHEDULES: usize = 1000;
/// How many times the PCT scheduler takes the processor from the thread that should have it.
const PCT_DEPTH: usize = 4;
/// Loading and committing need more than a coroutine has by default.
const STACK_BYTES: usize = 512 << 10;
/// What `cairn-checkpoint` captures at a time, with the feature `shuttle`.
const CHUNK_BYTES: usize = 64 << 10;
const STEPS: u8 = 3;

/// Tensors of a model: the first waits for a fence, the second may change as soon as `save` has returned.
const FENCED: (&str, usize) = ("fenced", 2 * CHUNK_BYTES + 1000);
const SHARED: (&str, usize) = ("shared", CHUNK_BYTES / 2);

/// Runs `scenario` in many orders.
fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    let scenario = Arc::new(scenario);
    let random = scenario.clone();
    Runner::new(RandomScheduler::new(SCHEDULES), config.clone()).run(move || random());
    Runner::new(PctScheduler::new(PCT_DEPTH, SCHEDULES), config).run(move || scenario());
}

/// A ring of so many buffers, filled by two threads.
fn ring(buffers: usize, overlap: Overlap) -> Options {
    Options {
        staging_bytes: Some((buffers * CHUNK_BYTES) as u64),
        capture_threads: 2,
        overlap,
        ..Options::default()
    }
}

fn run_in(store: Arc<dyn Store>, options: &Options) -> Checkpointer {
    let world = World::new(0, 1, "interleavings").unwrap();
    Checkpointer::with_options(store, world, options.clone())
}

fn spec(len: usize) -> TensorSpec {
    TensorSpec::parse(&Mesh::single(), &format!("u8[{len}]")).unwrap()
}

/// What an optimizer changes: every byte is the number of the step.
struct Model {
    fenced: SharedBytes,
    shared: SharedBytes,
    /// Counted up before a change of what is fenced, as frameworks do.
    version: Arc<AtomicU8>,
}

impl Model {
    fn new() -> Self {
        Self {
            fenced: SharedBytes::new(FENCED.1),
            shared: SharedBytes::new(SHARED.1),
            version: Arc::default(),
        }
    }

    /// Changes both tensors.
    fn train(&self, step: u8) {
        self.version.store(step, Ordering::SeqCst);
        fill(&self.fenced, step);
        fill(&self.shared, step);
    }

    fn save(&self, run: &Checkpointer, step: u8) -> Result<Saving, Error> {
        let mut state = State::new(0);
        let fenced = Bytes::fenced(self.fenced.memory());
        state.bytes(FENCED.0, &spec(FENCED.1), fenced)?;
        let shared = Bytes::Shared(self.shared.memory());
        state.bytes(SHARED.0, &spec(SHARED.1), shared)?;
        let version = self.version.clone();
        state.watch(Watch::new(move || {
            let changed = version.load(Ordering::SeqCst) != step;
            changed.then(|| FENCED.0.to_string()).into_iter().collect()
        }));
        run.save(u64::from(step), &state, &SaveOptions::default())
    }

    /// Trains and saves a step, as soon as the fence of the save before lets it.
    fn go_on(
        &self,
        run: &Checkpointer,
        step: u8,
        before: Option<&Saving>,
    ) -> Result<Saving, Error> {
        if let Some(saving) = before {
            saving.fence(&[]).unwrap();
        }
        self.train(step);
        let saving = self.save(run, step);
        // Nobody waits for this one.
        fill(&self.shared, u8::MAX);
        saving
    }
}

/// Fills a tensor piece by piece, while others run.
fn fill(tensor: &SharedBytes, value: u8) {
    const PIECE_BYTES: usize = CHUNK_BYTES / 2;
    for at in (0..tensor.len()).step_by(PIECE_BYTES) {
        let len = PIECE_BYTES.min(tensor.len() - at);
        tensor.write(at, &[value; PIECE_BYTES][..len]);
        thread::yield_now();
    }
}

/// Whether a step is committed. If it is, every byte of it is looked at.
fn is_committed(run: &Checkpointer, step: u8) -> bool {
    if !run.steps().unwrap().contains(&u64::from(step)) {
        return false;
    }
    let (mut fenced, mut shared) = (vec![0; FENCED.1], vec![0; SHARED.1]);
    let targets = vec![
        Target::new(FENCED.0, &spec(FENCED.1), 0, &mut fenced).unwrap(),
        Target::new(SHARED.0, &spec(SHARED.1), 0, &mut shared).unwrap(),
    ];
    let options = LoadOptions {
        threads: 1,
        ..LoadOptions::default()
    };
    let checkpoint = run.open(u64::from(step)).unwrap();
    checkpoint.load(targets, &options).unwrap();
    let bytes = fenced.iter().chain(&shared);
    let others: Vec<u8> = bytes.filter(|byte| **byte != step).copied().collect();
    assert!(others.is_empty(), "step {step} has bytes {:?}", others[0]);
    true
}

/// Waits for a save: it is committed and whole, or failed and gone.
fn outcome(run: &Checkpointer, step: u8, saving: &Saving) -> Result<(), Arc<Error>> {
    let result = saving.wait().map(drop);
    assert_eq!(is_committed(run, step), result.is_ok(), "{result:?}");
    result
}

/// Every buffer that was made is free when no save is under way.
fn assert_all_came_back(run: &Checkpointer) {
    run.release();
    assert_eq!(run.staging_bytes(), 0, "a buffer did not come back");
}

/// Trains and saves a few steps with one save behind the other, and returns how they ended.
fn train(options: &Options) -> Vec<Result<(), Arc<Error>>> {
    let run = run_in(Arc::new(Memory::new()), options);
    let model = Model::new();
    let mut savings: Vec<Saving> = Vec::new();
    for step in 1..=STEPS {
        savings.push(model.go_on(&run, step, savings.last()).unwrap());
    }
    let numbered = (1..=STEPS).zip(&savings);
    let results = numbered.map(|(step, saving)| outcome(&run, step, saving));
    let results = results.collect();
    assert_all_came_back(&run);
    results
}

#[test]
fn saves_that_wait_are_each_their_own_step() {
    for buffers in [1, 2] {
        let options = ring(buffers, Overlap::Wait);
        explore(move || {
            train(&options)
                .into_iter()
                .for_each(|result| result.unwrap())
        });
    }
}

#[test]
fn saves_that_queue_are_each_their_own_step() {
    for (buffers, most) in [(1, 1), (2, 2), (8, 2)] {
        let options = ring(buffers, Overlap::Queue(most));
        explore(move || {
            train(&options)
                .into_iter()
                .for_each(|result| result.unwrap())
        });
    }
}

#[test]
fn saves_that_are_skipped_leave_the_others_as_they_are() {
    for buffers in [1, 2] {
        let options = ring(buffers, Overlap::Skip);
        explore(move || {
            for result in train(&options) {
                let skipped = |error: &Arc<Error>| matches!(**error, Error::Skipped { .. });
                assert!(result.as_ref().err().is_none_or(skipped), "{result:?}");
            }
        });
    }
}

#[test]
fn reading_twice_goes_through_a_ring_of_one() {
    let options = Options {
        read_twice: true,
        ..ring(1, Overlap::Queue(1))
    };
    explore(move || {
        train(&options)
            .into_iter()
            .for_each(|result| result.unwrap())
    });
}

/// Cancels a save, and says whether its commit was under way by then.
fn cancel(store: &dyn Store, saving: &Saving) -> bool {
    saving.cancel();
    let listing = store.list(&step_folder(saving.step())).unwrap();
    listing.iter().any(|meta| meta.key.ends_with(".part"))
}

#[test]
fn a_cancelled_save_commits_nothing_and_gives_its_memory_back() {
    let options = ring(1, Overlap::Queue(1));
    explore(move || {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let run = Arc::new(run_in(store.clone(), &options));
        let model = Model::new();
        let first = model.go_on(&run, 1, None).unwrap();
        let canceller = thread::spawn({
            let (first, run) = (first.clone(), run.clone());
            move || {
                let under_way = cancel(store.as_ref(), &first);
                // Memory that is in use stays.
                run.release();
                under_way
            }
        });
        let second = model.go_on(&run, 2, Some(&first)).unwrap();
        let under_way = canceller.join().unwrap();
        match outcome(&run, 1, &first) {
            Ok(()) => assert!(under_way, "cancelled and committed"),
            Err(error) => assert!(matches!(*error, Error::Cancelled), "{error}"),
        }
        outcome(&run, 2, &second).unwrap();
        assert_all_came_back(&run);
    });
}

#[test]
fn a_state_that_is_changed_without_a_fence_is_never_committed_torn() {
    let options = ring(2, Overlap::Wait);
    explore(move || {
        let run = run_in(Arc::new(Memory::new()), &options);
        let model = Model::new();
        let saving = model.go_on(&run, 1, None).unwrap();
        model.train(2);
        saving.fence(&[]).unwrap();
        if let Err(error) = outcome(&run, 1, &saving) {
            assert!(matches!(*error, Error::Torn { .. }), "{error}");
        }
        assert_all_came_back(&run);
    });
}

#[test]
fn a_failed_write_lets_the_fence_go_and_gives_the_memory_back() {
    let options = ring(1, Overlap::Wait);
    explore(move || {
        let store = Arc::new(FlakyStore::new(Memory::new()));
        store.add(Rule::new([Operation::Write], Fault::NO_SPACE).nth(1));
        let run = run_in(store, &options);
        let model = Model::new();
        let first = model.go_on(&run, 1, None).unwrap();
        first.fence(&[]).unwrap();
        outcome(&run, 1, &first).unwrap_err();
        let second = model.go_on(&run, 2, Some(&first)).unwrap();
        outcome(&run, 2, &second).unwrap();
        assert_all_came_back(&run);
    });
}
