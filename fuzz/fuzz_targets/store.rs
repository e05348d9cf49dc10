//! Operations in any order on a folder and on memory: both do what a plain map of names to bytes would.

#![no_main]

use cairn_store::{Error, Local, Memory, PutMode, Store};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

/// Few names, so that operations meet; one is below another's folder.
const KEYS: [&str; 6] = ["a", "b/a", "b/c/a", "b/c/d", "e/COMMIT", "e/DELETED"];

#[derive(Debug, Arbitrary)]
enum Operation<'a> {
    Put {
        key: u8,
        bytes: &'a [u8],
        replace: bool,
    },
    Write {
        key: u8,
        bytes: &'a [u8],
        finish: bool,
    },
    Rename {
        key: u8,
        to: u8,
        replace: bool,
    },
    Delete {
        key: u8,
    },
    Read {
        key: u8,
        at: u8,
        len: u8,
    },
    Name {
        text: &'a str,
    },
}

type Model = BTreeMap<String, Vec<u8>>;

fuzz_target!(|operations: Vec<Operation>| {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder");
    let stores: [Box<dyn Store>; 2] = [
        Box::new(Memory::new()),
        Box::new(Local::new(folder.path().join("run"))),
    ];
    let mut model = Model::new();
    for operation in operations {
        let before = model.clone();
        for store in &stores {
            model = before.clone();
            apply(store.as_ref(), &mut model, &operation);
        }
    }
    for store in &stores {
        check(store.as_ref(), &model);
    }
});

fn key(number: u8) -> &'static str {
    KEYS[usize::from(number) % KEYS.len()]
}

fn mode(replace: bool) -> PutMode {
    if replace {
        PutMode::Replace
    } else {
        PutMode::Create
    }
}

fn apply(store: &dyn Store, model: &mut Model, operation: &Operation) {
    match *operation {
        Operation::Put {
            key: at,
            bytes,
            replace,
        } => {
            let taken = !replace && model.contains_key(key(at));
            let result = store.put(key(at), bytes, mode(replace));
            assert_eq!(result.is_err(), taken, "{result:?}");
            if !taken {
                model.insert(key(at).into(), bytes.into());
            }
        }
        Operation::Write {
            key: at,
            bytes,
            finish,
        } => {
            let created = store.create(key(at), bytes.len() as u64);
            assert_eq!(created.is_err(), model.contains_key(key(at)));
            let Ok(writer) = created else {
                return;
            };
            writer.write_at(0, bytes).expect("inside");
            assert!(writer.write_at(bytes.len() as u64, &[0]).is_err());
            if finish {
                writer.finish().expect("all is written");
                model.insert(key(at).into(), bytes.into());
            }
        }
        Operation::Rename {
            key: at,
            to,
            replace,
        } => rename(store, model, key(at), key(to), replace),
        Operation::Delete { key: at } => {
            store.delete(key(at)).expect("whether it is there or not");
            model.remove(key(at));
        }
        Operation::Read {
            key: at,
            at: offset,
            len,
        } => {
            // Nothing at all may be read anywhere.
            let mut bytes = vec![0; usize::from(len).max(1)];
            let read = store
                .reader(key(at))
                .and_then(|reader| reader.read_at(offset.into(), &mut bytes));
            let there = model
                .get(key(at))
                .and_then(|all| all.get(usize::from(offset)..)?.get(..bytes.len()));
            assert_eq!(read.is_ok().then_some(bytes.as_slice()), there, "{read:?}");
        }
        // Names that are refused lead nowhere; others are only asked for, so that the model knows what there is.
        Operation::Name { text } => drop((
            store.head(text),
            store.get(text),
            store.list(text),
            store.list_folders(text),
        )),
    }
}

fn rename(store: &dyn Store, model: &mut Model, key: &str, to: &str, replace: bool) {
    let result = store.rename(key, to, mode(replace));
    let Some(bytes) = model.get(key).cloned() else {
        assert!(matches!(result, Err(Error::NotFound { .. })), "{result:?}");
        return;
    };
    if key == to {
        return;
    }
    let taken = !replace && model.contains_key(to);
    assert_eq!(result.is_err(), taken, "{result:?}");
    if !taken {
        model.remove(key);
        model.insert(to.into(), bytes);
    }
}

fn check(store: &dyn Store, model: &Model) {
    let listing = store.list("").expect("a listing");
    let found: Model = listing
        .into_iter()
        .map(|meta| {
            (
                meta.key.clone(),
                store.get(&meta.key).expect("it is listed"),
            )
        })
        .collect();
    assert_eq!(&found, model, "{}", store.url());
    for key in KEYS {
        let len = store.head(key).expect("a look").map(|meta| meta.len);
        assert_eq!(len, model.get(key).map(|bytes| bytes.len() as u64));
    }
}
