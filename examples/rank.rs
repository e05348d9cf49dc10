//! One rank of a training run as a process of its own: it resumes, trains, and saves every step in the background.
//!
//! ```text
//! cargo run --example rank -- RUN RANK WORLD SESSION STEPS [--resume] [--fenced] [--all] [--deadline-ms N]
//! ```
//!
//! Start a process for every rank, with the same RUN, WORLD and SESSION. They never talk to each other: the folder RUN is
//! all they share. Kill any of them at any moment and start again with `--resume`, a new SESSION and, if you like, another
//! WORLD: the run goes on from its newest committed step. With 0 STEPS that step is only loaded and checked, with `--all` every
//! step before it as well.
//!
//! With `--fenced` the state is captured behind the back of the training, which changes it as soon as the fence lets it.
//!
//! In place of training, the state of each step is derived from its number, so that every byte that comes back can be checked.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use cairn::checkpoint::{
    Bytes, Checkpointer, Error, LoadOptions, Options, SaveOptions, Saving, State, Target, World,
};
use cairn::device::testing::SharedBytes;
use cairn::sharding::{Mesh, TensorSpec};
use cairn::tensor::{Runs, Strided};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

type Anything = Box<dyn std::error::Error>;

/// The tensors of a rank: name → the bytes it holds.
type Memory = BTreeMap<&'static str, Vec<u8>>;

/// The tensors of a rank as a framework has them: the same memory from step to step.
type Tensors = BTreeMap<&'static str, SharedBytes>;

/// A layer under AdamW in mixed precision: weights by tensor parallelism, optimizer states also cut flat between replicas.
const TENSORS: [(&str, &str); 5] = [
    ("model.weight", "bf16[1024@tp, 256]"),
    ("optim.master", "f32[1024@tp, 256 | flat(dp)]"),
    ("optim.exp_avg", "f32[1024@tp, 256 | flat(dp)]"),
    ("optim.exp_avg_sq", "f32[1024@tp, 256 | flat(dp)]"),
    ("optim.step", "i64[]"),
];

struct Arguments {
    run: String,
    world: World,
    steps: u64,
    resume: bool,
    fenced: bool,
    all: bool,
    deadline: Duration,
}

/// What a rank is made of: its place among the ranks, and the part of each tensor that follows from it.
struct Rank {
    rank: usize,
    specs: BTreeMap<&'static str, TensorSpec>,
}

fn main() -> ExitCode {
    match Arguments::parse().and_then(|arguments| train(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rank: {}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn train(arguments: &Arguments) -> Result<(), Anything> {
    let rank = Rank::new(&arguments.world)?;
    let options = Options {
        commit_timeout: arguments.deadline,
        ..Options::default()
    };
    let store = cairn::store::open(&arguments.run)?;
    let run = Checkpointer::with_options(store, arguments.world.clone(), options);
    let last = match arguments.resume {
        true => rank.resume(&run)?,
        false => 0,
    };
    if arguments.all {
        rank.check_all(&run)?;
    }
    let steps = last + 1..=last + arguments.steps;
    match arguments.fenced {
        true => train_fenced(&rank, &run, steps),
        false => train_borrowed(&rank, &run, steps),
    }
}

/// Lends each step's state to `save`, which has copied it when it returns.
fn train_borrowed(
    rank: &Rank,
    run: &Checkpointer,
    steps: RangeInclusive<u64>,
) -> Result<(), Anything> {
    let mut saving = None;
    for step in steps {
        // While the step before is being written, the next one is computed.
        let memory = rank.compute(step)?;
        report(saving.take())?;
        let state = rank.state(&memory)?;
        saving = Some(run.save(step, &state, &SaveOptions::default())?);
    }
    report(saving)
}

/// Keeps the state in one place, and changes it as soon as the save before has copied it.
fn train_fenced(
    rank: &Rank,
    run: &Checkpointer,
    steps: RangeInclusive<u64>,
) -> Result<(), Anything> {
    let tensors = rank.tensors()?;
    let mut memory = rank.compute(*steps.start())?;
    let mut saved: Option<Saving> = None;
    for step in steps {
        for (name, bytes) in &memory {
            tensors[name].write(0, bytes);
        }
        // Computed ahead, so that nothing but the fence lies between a save and the next change.
        memory = rank.compute(step + 1)?;
        report(saved.take())?;
        let state = rank.fenced_state(&tensors)?;
        let saving = run.save(step, &state, &SaveOptions::default())?;
        saving.fence(&[])?;
        saved = Some(saving);
    }
    report(saved)
}

/// Waits until a step is safe, and says so.
fn report(saving: Option<Saving>) -> Result<(), Anything> {
    if let Some(saving) = saving {
        println!("committed {}", saving.wait()?.step);
    }
    Ok(())
}

impl Rank {
    fn new(world: &World) -> Result<Self, Anything> {
        let tp = if world.size().is_multiple_of(2) { 2 } else { 1 };
        let mesh = Mesh::new([("dp", world.size() / tp), ("tp", tp)])?;
        let specs: Result<_, _> = TENSORS
            .iter()
            .map(|(name, text)| TensorSpec::parse(&mesh, text).map(|spec| (*name, spec)))
            .collect();
        Ok(Self {
            rank: world.rank(),
            specs: specs?,
        })
    }

    /// Loads the newest good step on this rank's own mesh, and checks every byte. Returns 0 if the run is empty.
    fn resume(&self, run: &Checkpointer) -> Result<u64, Anything> {
        let mut memory = self.compute(0)?;
        let targets = self.targets(&mut memory)?;
        let step = match run.load_latest(targets, &LoadOptions::default()) {
            Ok((latest, _)) if latest.skipped.is_empty() => latest.checkpoint.step(),
            Ok((latest, _)) => return Err(format!("passed over {:?}", latest.skipped).into()),
            Err(Error::NothingUsable { skipped, .. }) if skipped.is_empty() => 0,
            Err(error) => return Err(error.into()),
        };
        self.check(step, &memory)?;
        println!("resumed {step}");
        Ok(step)
    }

    /// Loads every committed step, and checks every byte.
    fn check_all(&self, run: &Checkpointer) -> Result<(), Anything> {
        for step in run.steps()? {
            let mut memory = self.compute(0)?;
            let targets = self.targets(&mut memory)?;
            run.open(step)?.load(targets, &LoadOptions::default())?;
            self.check(step, &memory)?;
        }
        Ok(())
    }

    fn targets<'a>(&self, memory: &'a mut Memory) -> Result<Vec<Target<'a>>, Error> {
        let target = |(name, bytes): (&&str, &'a mut Vec<u8>)| {
            Target::new(name, &self.specs[name], self.rank, bytes)
        };
        memory.iter_mut().map(target).collect()
    }

    /// Compares every byte with what `step` should have left.
    fn check(&self, step: u64, memory: &Memory) -> Result<(), Anything> {
        for (name, bytes) in self.compute(step)? {
            if memory[name] != bytes {
                return Err(format!("`{name}` of step {step} differs from what was saved").into());
            }
        }
        Ok(())
    }

    /// This rank's part of every tensor after `step`.
    fn compute(&self, step: u64) -> Result<Memory, Anything> {
        let mut memory = Memory::new();
        for (name, spec) in &self.specs {
            let dtype = spec.dtype();
            let bytes_of = |count| dtype.len_bytes(count).ok_or("not whole bytes");
            let whole = pattern(name, step, bytes_of(spec.shape().iter().product())?);
            let mut local = vec![0; bytes_of(spec.local_element_count(self.rank))?];
            for held in spec.local_boxes(self.rank) {
                let region = Strided::contiguous(spec.shape())
                    .region(&held.region.offset, &held.region.extent)
                    .ok_or("a box lies outside its tensor")?;
                Runs::between(dtype, &region, &held.local)?.copy(&whole, &mut local)?;
            }
            memory.insert(name, local);
        }
        Ok(memory)
    }

    fn state<'a>(&self, memory: &'a Memory) -> Result<State<'a>, Error> {
        let mut state = State::new(self.rank);
        for (name, bytes) in memory {
            state.tensor(name, &self.specs[name], bytes)?;
        }
        Ok(state)
    }

    /// Memory for this rank's part of every tensor.
    fn tensors(&self) -> Result<Tensors, Anything> {
        let memory = self.compute(0)?;
        let tensor = |(name, bytes): (_, Vec<u8>)| (name, SharedBytes::new(bytes.len()));
        Ok(memory.into_iter().map(tensor).collect())
    }

    fn fenced_state(&self, tensors: &Tensors) -> Result<State<'static>, Error> {
        let mut state = State::new(self.rank);
        for (name, bytes) in tensors {
            let bytes = Bytes::fenced(bytes.memory());
            state.bytes(name, &self.specs[name], bytes)?;
        }
        Ok(state)
    }
}

/// Bytes that differ between tensors, steps and places.
fn pattern(name: &str, step: u64, len: usize) -> Vec<u8> {
    let mut word = name.bytes().fold(step, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        word = word
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(word ^ word >> 32).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

impl Arguments {
    fn parse() -> Result<Self, Anything> {
        const USAGE: &str =
            "RUN RANK WORLD SESSION STEPS [--resume] [--fenced] [--all] [--deadline-ms N]";
        let mut words: Vec<String> = std::env::args().skip(1).collect();
        let mut deadline = Duration::from_secs(600);
        if let Some(at) = words.iter().position(|word| word == "--deadline-ms") {
            let value = words.get(at + 1).ok_or(USAGE)?;
            deadline = Duration::from_millis(value.parse()?);
            words.drain(at..=at + 1);
        }
        let mut flag = |flag: &str| {
            let before = words.len();
            words.retain(|word| word != flag);
            words.len() < before
        };
        let (resume, fenced, all) = (flag("--resume"), flag("--fenced"), flag("--all"));
        let [run, rank, world, session, steps] = &words[..] else {
            return Err(USAGE.into());
        };
        let world = World::new(rank.parse()?, world.parse()?, session);
        Ok(Self {
            run: run.clone(),
            world: world.ok_or("RANK must be smaller than WORLD")?,
            steps: steps.parse()?,
            resume,
            fenced,
            all,
            deadline,
        })
    }
}

/// An error with all its causes, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(with_causes);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
