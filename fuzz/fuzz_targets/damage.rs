//! A run whose files are cut, changed, swapped, deleted and joined by others: a step loads as it was saved, or not at all, and what is done
//! for the run takes away no step that could be loaded.

#![no_main]

use cairn_fuzz::run::{self, FILES, Files, NAMES};
use cairn_store::Store;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// What happens to the files of a run.
#[derive(Debug, Arbitrary)]
enum Harm<'a> {
    Write {
        file: u8,
        at: u32,
        bytes: &'a [u8],
    },
    Cut {
        file: u8,
        len: u32,
    },
    Copy {
        file: u8,
        over: u8,
    },
    Delete {
        file: u8,
    },
    /// Something lies there that nobody of us put.
    Put {
        folder: u8,
        name: u8,
        bytes: &'a [u8],
    },
}

/// Small files that a run may have.
const SMALL: [&str; 12] = [
    "SIGNATURE",
    "DELETED",
    "DURABLE",
    "FAILED",
    "best.tag",
    "x.tag",
    "00000.pin",
    "00001.part",
    "00007.part",
    "00000.timeline",
    "00000.blake3",
    "SCRUB",
];

/// Of so many inputs, one meets what the owners of a run do.
const TENDED: u8 = 8;

fuzz_target!(|input: (u8, u8, Vec<Harm>)| {
    let (look, task, harms) = input;
    let mut files = FILES.clone();
    for harm in harms {
        apply(&mut files, harm);
    }
    let store = run::store(&files);
    let (step, tensor) = (u64::from(look & 1) + 1, usize::from(look >> 1 & 1));
    let before = loads(&store, step, tensor, look >> 2 == 0);
    if task.is_multiple_of(TENDED) {
        run::tend(&store, task / TENDED);
        let after = loads(&store, step, tensor, false);
        // The older one may be pruned.
        assert!(step == 1 || after || !before, "step {step} is gone");
    }
});

/// Whether a tensor can be loaded; if so, it is what was saved.
fn loads(store: &Arc<dyn Store>, step: u64, tensor: usize, all: bool) -> bool {
    let Some(checkpoint) = run::open(store, step, all) else {
        return false;
    };
    let loaded = run::load(&checkpoint, NAMES[tensor], &run::spec(tensor));
    if let Some(bytes) = &loaded {
        let saved = run::bytes(step, tensor);
        assert!(
            *bytes == saved,
            "`{}` of step {step} is not what was saved",
            NAMES[tensor]
        );
    }
    loaded.is_some()
}

fn apply(files: &mut Files, harm: Harm) {
    if files.is_empty() {
        return;
    }
    let number = |file: u8| usize::from(file) % files.len();
    match harm {
        Harm::Write { file, at, bytes } => {
            let file = number(file);
            let old = &mut files[file].1;
            let at = usize::try_from(at).unwrap_or(0) % (old.len() + 1);
            old[at..]
                .iter_mut()
                .zip(bytes)
                .for_each(|(old, new)| *old = *new);
        }
        Harm::Cut { file, len } => {
            let file = number(file);
            let len = usize::try_from(len).unwrap_or(0) % (files[file].1.len() + 1);
            files[file].1.truncate(len);
        }
        Harm::Copy { file, over } => {
            let (file, over) = (number(file), number(over));
            files[over].1 = files[file].1.clone();
        }
        Harm::Delete { file } => {
            let file = number(file);
            files.remove(file);
        }
        Harm::Put {
            folder,
            name,
            bytes,
        } => {
            let (near, _) = FILES[usize::from(folder) % FILES.len()]
                .0
                .rsplit_once('/')
                .unwrap_or_default();
            let name = SMALL[usize::from(name) % SMALL.len()];
            let key = if near.is_empty() {
                name.to_owned()
            } else {
                format!("{near}/{name}")
            };
            files.retain(|(there, _)| *there != key);
            files.push((key, bytes.to_vec()));
        }
    }
}
