//! A healthy run: a step that stands alone and is signed, and one that refers to its blocks, each of two writers.

use cairn_checkpoint::retention::{self, Keep};
use cairn_checkpoint::scrub::{ScrubOptions, scrub};
use cairn_checkpoint::signing::{PublicKey, SecretKey, sign};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, LoadOptions, Options, SaveOptions, Source, State, Target, World,
    compact, finish, survey, survey_signed, verify,
};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_store::testing::pattern;
use cairn_store::{Memory, PutMode, Store};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

pub const STEPS: [u64; 2] = [1, 2];
pub const NAMES: [&str; 2] = ["model.weight", "optimizer.momentum"];
/// Each writer has more than one block of the first.
const LENGTHS: [usize; 2] = [160 << 10, 300];
/// Where steps differ.
const CHANGED: usize = 10;

/// The key of each file, and its bytes.
pub type Files = Vec<(String, Vec<u8>)>;

/// The files of the run.
pub static FILES: LazyLock<Files> = LazyLock::new(save);

/// Who signed the first step.
pub static KEY: LazyLock<PublicKey> = LazyLock::new(|| secret_key().public());

fn secret_key() -> SecretKey {
    let text = format!("cairn-ed25519-secret:{}", "17".repeat(32));
    text.parse().expect("digits")
}

/// What a tensor was at a step.
pub fn bytes(step: u64, tensor: usize) -> Vec<u8> {
    let mut bytes = pattern(tensor as u64, LENGTHS[tensor]);
    bytes[..CHANGED].fill(step as u8);
    bytes
}

/// A tensor, whole.
pub fn spec(tensor: usize) -> TensorSpec {
    let text = format!("u8[{}]", LENGTHS[tensor]);
    TensorSpec::parse(&Mesh::single(), &text).expect("a plain shape")
}

fn save() -> Files {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let world = World::new(rank, 2, "fuzz").expect("a rank of two").unique();
            let store = store.clone();
            scope.spawn(move || save_rank(store, world));
        }
    });
    let checkpoint = Checkpoint::open(store.clone(), 2).expect("it is committed");
    assert!(
        checkpoint.manifest().delta.is_some(),
        "it refers to the step before"
    );
    let checkpoint = Checkpoint::open(store.clone(), 1).expect("it is committed");
    sign(&checkpoint, &secret_key(), &|_| ()).expect("it is healthy");
    let listing = store.list("").expect("memory");
    let read = |key: String| (key.clone(), store.get(&key).expect("it is listed"));
    listing.into_iter().map(|meta| read(meta.key)).collect()
}

fn save_rank(store: Arc<dyn Store>, world: World) {
    let mesh: Mesh = "tp=2".parse().expect("a mesh");
    let rank = world.rank();
    let options = Options {
        delta: true,
        ..Options::default()
    };
    let run = Checkpointer::with_options(store, world, options);
    for step in STEPS {
        let whole: Vec<Vec<u8>> = (0..2).map(|tensor| bytes(step, tensor)).collect();
        let mut state = State::new(rank);
        for ((name, bytes), len) in NAMES.iter().zip(&whole).zip(LENGTHS) {
            let spec = TensorSpec::parse(&mesh, &format!("u8[{len}@tp]")).expect("a plain shape");
            let half = &bytes[rank * len / 2..][..len / 2];
            state.tensor(name, &spec, half).expect("a plain tensor");
        }
        state.value("loss", 0.5.into());
        state.rank_value("seed", rank.into());
        let options = SaveOptions {
            tags: (step == 2).then(|| "best".to_owned()).into_iter().collect(),
            assets: [("config.json".to_owned(), b"{}".to_vec())].into(),
            ..SaveOptions::default()
        };
        let saving = run.save(step, &state, &options).expect("a plain state");
        saving.wait().expect("memory");
    }
}

/// A store with these files.
pub fn store(files: &[(String, Vec<u8>)]) -> Arc<dyn Store> {
    let store = Memory::new();
    for (key, bytes) in files {
        let _ = store.put(key, bytes, PutMode::Replace);
    }
    Arc::new(store)
}

/// Opens a step of the run in `store`; at times all that belongs to it is read, too.
pub fn open(store: &Arc<dyn Store>, step: u64, all: bool) -> Option<Checkpoint> {
    if all {
        let _ = survey(store, step, 1.0, &|_| ());
    }
    let checkpoint = Checkpoint::open(store.clone(), step).ok()?;
    if all {
        let _ = (
            checkpoint.tags(),
            checkpoint.assets(),
            checkpoint.timelines(),
        );
        let _ = (checkpoint.rank_values(1), checkpoint.rank_values(2));
    }
    Some(checkpoint)
}

/// Loads a tensor; nothing if it is refused.
pub fn load(checkpoint: &Checkpoint, name: &str, spec: &TensorSpec) -> Option<Vec<u8>> {
    let mut bytes =
        vec![0; crate::len_bytes(spec).filter(|len| *len <= crate::MAX_READ_BYTES as usize)?];
    let target = Target::new(name, spec, 0, &mut bytes).ok()?;
    let options = LoadOptions {
        threads: 1,
        ..LoadOptions::default()
    };
    checkpoint.load(vec![target], &options).ok()?;
    Some(bytes)
}

/// Does to the run what its owners do now and then; `task` says what.
pub fn tend(store: &Arc<dyn Store>, task: u8) {
    match task % 32 {
        0..6 => drop(retention::plan(
            store,
            &Keep::default(),
            Some(Duration::ZERO),
            SystemTime::now(),
        )),
        6..10 => drop(scrub(store, &ScrubOptions::default(), &|| false, &|_| ())),
        10..14 => STEPS
            .iter()
            .for_each(|step| drop(finish(store.as_ref(), *step))),
        14..18 => drop(survey_signed(store, 1, &KEY, 1.0, &|_| ())),
        18..22 => {
            if let Ok(checkpoint) = Checkpoint::open(store.clone(), 1) {
                let _ = checkpoint
                    .require_key(&KEY)
                    .map(|signed| verify(&signed, 1.0, &|_| ()));
            }
        }
        22..26 => drop(Checkpointer::new(store.clone(), World::single()).latest()),
        26..31 => {
            if let Ok(plan) = retention::plan(
                store,
                &Keep::default(),
                Some(Duration::ZERO),
                SystemTime::now(),
            ) {
                let _ = retention::prune(store.as_ref(), &plan);
            }
        }
        // It takes memory by the megabyte.
        _ => {
            let world = World::new(0, 1, "compact").expect("a rank of one").unique();
            let _ = compact(store, 2, &world, &Arc::new(AtomicU64::new(0)));
        }
    }
}
