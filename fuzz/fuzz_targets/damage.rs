//! A committed step whose files are cut, changed, swapped and deleted: it loads as it was saved, or not at all.

#![no_main]

use cairn_checkpoint::{Checkpoint, Checkpointer, LoadOptions, SaveOptions, State, Target, World, survey};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_store::testing::pattern;
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};

const NAMES: [&str; 2] = ["model.weight", "optimizer.momentum"];
const LEN_BYTES: usize = 300;

/// What happens to a file of the step.
#[derive(Debug, Arbitrary)]
enum Harm<'a> {
    Write { file: u8, at: u16, bytes: &'a [u8] },
    Cut { file: u8, len: u16 },
    Copy { file: u8, over: u8 },
    Delete { file: u8 },
}

/// The files of a healthy step.
static FILES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let mut state = State::new(0);
    let bytes: Vec<Vec<u8>> = (0..2).map(|seed| pattern(seed, LEN_BYTES)).collect();
    for (name, bytes) in NAMES.iter().zip(&bytes) {
        state.tensor(name, &spec(), bytes).expect("a plain tensor");
    }
    let run = Checkpointer::new(store.clone(), World::single());
    let saving = run.save(1, &state, &SaveOptions::default()).expect("a plain state");
    saving.wait().expect("memory");
    let listing = store.list("").expect("memory");
    let read = |key: String| (key.clone(), store.get(&key).expect("it is listed"));
    listing.into_iter().map(|meta| read(meta.key)).collect()
});

fn spec() -> TensorSpec {
    TensorSpec::parse(&Mesh::single(), &format!("u8[{LEN_BYTES}]")).expect("a plain shape")
}

fuzz_target!(|harms: Vec<Harm>| {
    let mut files = FILES.clone();
    for harm in harms {
        apply(&mut files, harm);
    }
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    for (key, bytes) in &files {
        store.put(key, bytes, PutMode::Create).expect("memory");
    }
    let _ = survey(&store, 1, 1.0, &|_| ());
    let Ok(checkpoint) = Checkpoint::open(store, 1) else {
        return;
    };
    for (seed, name) in (0..).zip(NAMES) {
        let mut bytes = vec![0; LEN_BYTES];
        let target = Target::new(name, &spec(), 0, &mut bytes).expect("a plain target");
        if checkpoint.load(vec![target], &LoadOptions::default()).is_ok() {
            assert_eq!(bytes, pattern(seed, LEN_BYTES), "`{name}`");
        }
    }
});

fn apply(files: &mut Vec<(String, Vec<u8>)>, harm: Harm) {
    if files.is_empty() {
        return;
    }
    let number = |file: u8| usize::from(file) % files.len();
    match harm {
        Harm::Write { file, at, bytes } => {
            let file = number(file);
            let there = files[file].1.get_mut(usize::from(at)..).unwrap_or_default();
            there.iter_mut().zip(bytes).for_each(|(old, new)| *old = *new);
        }
        Harm::Cut { file, len } => {
            let file = number(file);
            files[file].1.truncate(usize::from(len));
        }
        Harm::Copy { file, over } => {
            let (file, over) = (number(file), number(over));
            files[over].1 = files[file].1.clone();
        }
        Harm::Delete { file } => {
            let file = number(file);
            files.remove(file);
        }
    }
}
