//! Every option with every other, on a simulated device that goes on changing the state: a committed step is the moment of its call.
//!
//! The list of options is that of the suite for real GPUs (`cargo xtask gpu captures`). Sizes are smaller here.

use crate::common::memory;
use cairn_checkpoint::ema::Ema;
use cairn_checkpoint::signing::{SecretKey, sign};
use cairn_checkpoint::{
    Averaging, Bytes, Checkpointer, LoadOptions, Options, Overlap, Pace, SaveOptions, State,
    Strictness, Target, World,
};
use cairn_device::Stream;
use cairn_device::testing::{Simulated, SimulatedTensor};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_store::{Store, Tiered};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const TRAINING: Stream = Stream(0);
const STEPS: u8 = 2;
/// A save that takes longer waits for something that does not come.
const LIMIT: Duration = Duration::from_secs(60);
/// Options that are those of the Python package, or of another crate.
const ELSEWHERE: [&str; 7] = [
    "keep",
    "keeper",
    "ranks",
    "world",
    "process_group",
    "storage_options",
    "commit_timeout",
];
/// On the host.
const HOST_LEN: usize = 1000;
/// One chunk.
const SMALL_LEN: usize = 3 << 20;
/// Two chunks, which is more than the smaller ring.
const LARGE_LEN: usize = 9 << 20;

/// A choice: the name of an option, and which of its values.
type Choice = (String, String);

fn choices() -> Vec<Choice> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../bindings/python/tests/gpu/captures.json"
    );
    #[expect(clippy::disallowed_methods, reason = "a list of cases, not a store")]
    let text = std::fs::read_to_string(path).unwrap();
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = list["options"].as_array().unwrap().iter();
    rows.map(|row| {
        let text = |place: usize| row[place].as_str().unwrap().to_string();
        (text(0), text(1))
    })
    .collect()
}

/// What a choice means here.
fn choose(trial: &mut Trial, (name, value): &Choice) {
    let options = &mut trial.options;
    match (name.as_str(), value.as_str()) {
        ("staging_bytes", "8M") => options.staging_bytes = Some(8 << 20),
        ("staging_bytes", "24M") => options.staging_bytes = Some(16 << 20),
        // More than what is always allowed, and not all of the state.
        ("scratch_bytes", "40M") => trial.room = Some(1 << 20),
        ("scratch_bytes", "1G") => options.scratch_bytes = 1 << 30,
        ("fence", "manual") => trial.fenced = true,
        ("fence", "none") => trial.fenced = false,
        ("overlap", "skip") => options.overlap = Overlap::Skip,
        ("overlap", "queue") => options.overlap = Overlap::Queue(3),
        ("ema", _) => trial.averaged = true,
        ("read_twice", _) => options.read_twice = true,
        ("delta", _) => options.delta = true,
        ("compress", _) => options.compress = true,
        ("bytes_per_second", _) => options.pace = Some(Arc::new(Pace::new(200 << 20))),
        ("require_key", _) => {
            let key = SecretKey::generate().unwrap();
            options.require_key = Some(key.public());
            trial.key = Some(key);
        }
        ("url", "tiers") => trial.store = Arc::new(Tiered::new(memory(), memory())),
        (other, _) => assert!(ELSEWHERE.contains(&other), "{other} is unknown here"),
    }
}

/// A run with some options, and a state on a device.
struct Trial {
    store: Arc<dyn Store>,
    options: Options,
    /// Scratch memory that the device has left.
    room: Option<usize>,
    fenced: bool,
    averaged: bool,
    key: Option<SecretKey>,
    lens: [usize; 3],
}

impl Trial {
    fn new(chosen: &[&Choice]) -> Self {
        let is_ring = chosen.iter().any(|(name, _)| name == "staging_bytes");
        let mut trial = Self {
            store: memory(),
            options: Options::default(),
            room: None,
            fenced: true,
            averaged: false,
            key: None,
            lens: [5, if is_ring { LARGE_LEN } else { SMALL_LEN }, 70_000],
        };
        chosen.iter().for_each(|choice| choose(&mut trial, choice));
        trial
    }

    fn tensors(&self) -> Vec<SimulatedTensor> {
        let device = Simulated::new(7, Duration::from_micros(100));
        if let Some(room) = self.room {
            device.limit_scratch(room);
        }
        let tensors = self.lens.iter();
        tensors.map(|len| device.tensor(&vec![0; *len])).collect()
    }

    fn state<'a>(&self, tensors: &[SimulatedTensor], host: &'a [u8]) -> State<'a> {
        let mut state = State::new(0);
        state.tensor("host", &spec(host.len()), host).unwrap();
        for (index, (tensor, len)) in tensors.iter().zip(self.lens).enumerate() {
            let memory = tensor.memory(TRAINING);
            // The last is nobody's, as a buffer of a model is.
            let bytes = match self.fenced && index < 2 {
                true => Bytes::fenced(memory),
                false => Bytes::Shared(memory),
            };
            state
                .bytes(&format!("t{index}"), &spec(len), bytes)
                .unwrap();
        }
        state
    }

    /// Saves steps while the device goes on, and looks at every byte of what was committed.
    fn run(self) {
        let run =
            Checkpointer::with_options(self.store.clone(), World::single(), self.options.clone());
        let tensors = self.tensors();
        let averaging = self.averaged.then(|| {
            let of = [("t1".to_string(), "t1".to_string())];
            let outline = self.state(&tensors, &[0; HOST_LEN]).outline();
            let emas = vec![Ema::exponential(0.5)];
            Arc::new(Averaging::new(&World::single(), &outline, emas, &of.into()).unwrap())
        });
        let streams = [("simulated".to_string(), TRAINING)];
        let mut saved = Vec::new();
        for step in 1..=STEPS {
            fill(&tensors, step);
            let host = vec![step; HOST_LEN];
            let mut state = self.state(&tensors, &host);
            let update = averaging.as_ref().and_then(|averaging| {
                let update = run.average(u64::from(step), &state, averaging).unwrap();
                averaging.add_to(&mut state, update.clone()).unwrap();
                update
            });
            let saving = run
                .save(u64::from(step), &state, &SaveOptions::default())
                .unwrap();
            if self.fenced {
                saving.fence(&streams).unwrap();
                update.inspect(|update| drop(update.fence(&streams).unwrap()));
            }
            fill(&tensors, u8::MAX);
            drop(state);
            // It was only borrowed.
            drop(host);
            if !saving.is_skipped() {
                saved.push((step, saving));
            }
        }
        for (_, saving) in &saved {
            saving.wait().unwrap();
        }
        run.wait().unwrap();
        assert_eq!(saved[0].0, 1);
        for (step, _) in saved {
            self.look(&run, step);
        }
    }

    fn look(&self, run: &Checkpointer, step: u8) {
        if let Some(key) = &self.key {
            assert!(run.open(u64::from(step)).is_err(), "it is not signed yet");
            let plain = Checkpointer::new(self.store.clone(), World::single());
            sign(&plain.open(u64::from(step)).unwrap(), key, &|_| ()).unwrap();
        }
        let opened = run.open(u64::from(step)).unwrap();
        let options = LoadOptions {
            strictness: Strictness::PARTIAL,
            ..LoadOptions::default()
        };
        let device = self.lens.into_iter().enumerate();
        let device = device.map(|(index, len)| (format!("t{index}"), len));
        for (name, len) in device.chain([("host".to_string(), HOST_LEN)]) {
            let mut bytes = vec![0; len];
            let target = Target::new(&name, &spec(len), 0, &mut bytes).unwrap();
            opened.load(vec![target], &options).unwrap();
            let wrong = bytes.iter().position(|byte| *byte != step);
            assert_eq!(wrong, None, "step {step}, tensor {name}");
        }
        if self.averaged {
            // Of numbers that are all alike and all counted alike.
            let mut bytes = vec![0; 4 * (self.lens[1] / 2)];
            let text = format!("f32[{}]", self.lens[1] / 2);
            let spec = TensorSpec::parse(&Mesh::single(), &text).unwrap();
            let target = Target::new("ema/0.5/t1", &spec, 0, &mut bytes).unwrap();
            opened.load(vec![target], &options).unwrap();
            let (numbers, _) = bytes.as_chunks::<4>();
            assert!(numbers.iter().all(|number| number == &numbers[0]));
            let bf16 = |byte: u8| f32::from_bits(u32::from_be_bytes([byte, byte, 0, 0]));
            let means = [0.0, bf16(1), f32::midpoint(bf16(1), bf16(2))];
            assert_eq!(f32::from_le_bytes(numbers[0]), means[usize::from(step)]);
        }
    }
}

fn fill(tensors: &[SimulatedTensor], value: u8) {
    tensors
        .iter()
        .for_each(|tensor| tensor.fill(TRAINING, value));
}

fn spec(len: usize) -> TensorSpec {
    // Of two bytes each, so that they can be averaged.
    let text = match len % 2 {
        0 => format!("bf16[{}]", len / 2),
        _ => format!("u8[{len}]"),
    };
    TensorSpec::parse(&Mesh::single(), &text).unwrap()
}

/// Runs the pairs whose number leaves `rest` when divided by four, each within its time.
fn try_pairs(rest: usize) {
    let choices: Vec<Choice> = choices()
        .into_iter()
        .filter(|(name, _)| !ELSEWHERE.contains(&name.as_str()))
        .collect();
    let pairs = choices.iter().enumerate().flat_map(|(place, one)| {
        // With itself: alone.
        let others = choices[place..].iter();
        others.map(move |other| (one, other))
    });
    let pairs = pairs.filter(|(one, other)| one == other || one.0 != other.0);
    for (_, (one, other)) in pairs.enumerate().filter(|(number, _)| number % 4 == rest) {
        let trial = Trial::new(&[one, other]);
        let (sender, ended) = channel();
        let running = thread::spawn(move || {
            trial.run();
            let _ = sender.send(());
        });
        let ended = ended.recv_timeout(LIMIT);
        assert_ne!(
            ended,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout),
            "{one:?} with {other:?} hangs"
        );
        assert!(running.join().is_ok(), "{one:?} with {other:?}");
    }
}

#[test]
fn every_two_options_save_the_moment_of_the_call_1() {
    try_pairs(0);
}

#[test]
fn every_two_options_save_the_moment_of_the_call_2() {
    try_pairs(1);
}

#[test]
fn every_two_options_save_the_moment_of_the_call_3() {
    try_pairs(2);
}

#[test]
fn every_two_options_save_the_moment_of_the_call_4() {
    try_pairs(3);
}
