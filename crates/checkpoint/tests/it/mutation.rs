//! Host memory that an optimizer on real threads changes as soon as it may, and sooner: what is committed is always one step.

use cairn_checkpoint::{
    Bytes, Checkpointer, Error, LoadOptions, Options, Overlap, SaveOptions, Saving, State, Target,
    Watch, World,
};
use cairn_device::testing::SharedBytes;
use cairn_sharding::{Mesh, TensorSpec};
use cairn_store::Memory;
use cairn_store::testing::pattern;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Of one byte, of a few, of a page and more, of several chunks.
const LENS: [usize; 4] = [1, 700, 70_000, (17 << 20) + 5];

/// One tensor, and how often it was changed.
#[derive(Clone)]
struct Tensor {
    name: String,
    bytes: SharedBytes,
    version: Arc<AtomicU64>,
}

impl Tensor {
    fn all() -> Vec<Self> {
        let numbered = LENS.iter().enumerate();
        let make = |(index, len): (usize, &usize)| Self {
            name: format!("t{index}"),
            bytes: SharedBytes::new(*len),
            version: Arc::default(),
        };
        numbered.map(make).collect()
    }

    fn spec(&self) -> TensorSpec {
        TensorSpec::parse(&Mesh::single(), &format!("u8[{}]", self.bytes.len())).unwrap()
    }

    /// The bytes it has after a step.
    fn after(&self, step: u64) -> Vec<u8> {
        pattern(step, self.bytes.len())
    }

    fn train(&self, step: u64) {
        // Counted first, so that no copy has a byte of the change without the watch knowing.
        self.version.fetch_add(1, Ordering::SeqCst);
        self.bytes.write(0, &self.after(step));
    }
}

/// Changes the tensors on two threads.
fn train(tensors: &[Tensor], step: u64) {
    let (first, second) = tensors.split_at(tensors.len() / 2);
    thread::scope(|scope| {
        for half in [first, second] {
            scope.spawn(move || half.iter().rev().for_each(|tensor| tensor.train(step)));
        }
    });
}

fn save(run: &Checkpointer, tensors: &[Tensor], step: u64) -> Saving {
    let mut state = State::new(0);
    for tensor in tensors {
        let bytes = Bytes::fenced(tensor.bytes.memory());
        state.bytes(&tensor.name, &tensor.spec(), bytes).unwrap();
    }
    let version = |tensor: &Tensor| tensor.version.load(Ordering::SeqCst);
    let then: Vec<(Tensor, u64)> = tensors
        .iter()
        .map(|tensor| (tensor.clone(), version(tensor)))
        .collect();
    state.watch(Watch::new(move || {
        let changed = then
            .iter()
            .filter(|(tensor, then)| version(tensor) != *then);
        changed.map(|(tensor, _)| tensor.name.clone()).collect()
    }));
    run.save(step, &state, &SaveOptions::default()).unwrap()
}

/// Looks at every byte of a committed step.
fn assert_whole(run: &Checkpointer, tensors: &[Tensor], step: u64) {
    let mut loaded: Vec<Vec<u8>> = LENS.iter().map(|len| vec![0; *len]).collect();
    let targets = tensors.iter().zip(&mut loaded);
    let targets = targets.map(|(tensor, bytes)| {
        let target = Target::new(&tensor.name, &tensor.spec(), 0, bytes);
        target.unwrap()
    });
    let checkpoint = run.open(step).unwrap();
    checkpoint
        .load(targets.collect(), &LoadOptions::default())
        .unwrap();
    for (tensor, bytes) in tensors.iter().zip(&loaded) {
        assert!(*bytes == tensor.after(step), "`{}` of {step}", tensor.name);
    }
}

fn options() -> impl Strategy<Value = Options> {
    let overlap = prop_oneof![Just(Overlap::Wait), Just(Overlap::Queue(2))];
    (1..5_u64, 1..4_usize, overlap, any::<bool>()).prop_map(
        |(buffers, capture_threads, overlap, read_twice)| Options {
            staging_bytes: Some(buffers * (8 << 20)),
            capture_threads,
            overlap,
            read_twice,
            ..Options::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn a_state_that_changes_right_after_every_fence_is_saved_as_it_was(
        options in options(),
        seed in any::<u64>(),
    ) {
        let run = Checkpointer::with_options(Arc::new(Memory::new()), World::single(), options);
        let tensors = Tensor::all();
        let steps = (0..4).map(|count| seed.wrapping_add(count) % 1_000_000);
        let mut savings: Vec<Saving> = Vec::new();
        for step in steps {
            if let Some(saving) = savings.last() {
                saving.fence(&[]).unwrap();
            }
            train(&tensors, step);
            savings.push(save(&run, &tensors, step));
        }
        for saving in savings {
            assert_whole(&run, &tensors, saving.wait().unwrap().step);
        }
    }

    #[test]
    fn a_state_that_changes_before_its_fence_is_saved_as_it_was_or_not_at_all(
        options in options(),
        pauses_us in prop::collection::vec(0..4000_u64, 4),
    ) {
        let run = Checkpointer::with_options(Arc::new(Memory::new()), World::single(), options);
        let tensors = Tensor::all();
        for (step, pause_us) in (0..).zip(pauses_us) {
            train(&tensors, step);
            let saving = save(&run, &tensors, step);
            thread::sleep(Duration::from_micros(pause_us));
            train(&tensors, step + 1000);
            saving.fence(&[]).unwrap();
            match saving.wait() {
                Ok(_) => assert_whole(&run, &tensors, step),
                Err(error) => {
                    prop_assert!(matches!(*error, Error::Torn { .. }), "{}", error);
                    prop_assert!(!run.steps().unwrap().contains(&step));
                }
            }
        }
    }
}
