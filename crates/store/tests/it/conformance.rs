//! Every store passes the one suite.

use std::path::Path;
use std::sync::Arc;

use cairn_store::testing::{CrashStore, FlakyStore, conformance};
use cairn_store::{Local, LocalOptions, Memory, Store};

/// Runs the suite on new folders inside `place`, and checks that no file is left beside the objects.
pub(crate) fn check_local(place: &Path, options: LocalOptions) {
    let folder = tempfile::tempdir_in(place).unwrap();
    let number = std::cell::Cell::new(0);
    conformance(|| {
        number.set(number.get() + 1);
        let root = folder.path().join(number.get().to_string()).join("run");
        Arc::new(Local::with_options(root, options))
    });
    assert!(number.get() > 0);
    let mut pending = vec![folder.path().to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            assert!(!name.starts_with(".tmp-"), "{:?} is left", entry.path());
            if entry.path().is_dir() {
                pending.push(entry.path());
            }
        }
    }
}

#[test]
fn memory_conforms() {
    conformance(|| Arc::new(Memory::new()));
}

#[test]
fn local_conforms_on_disk() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    check_local(place, LocalOptions::default());
}

#[test]
fn local_conforms_through_the_page_cache() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    check_local(place, LocalOptions { direct: false });
}

#[test]
fn local_conforms_on_a_file_system_in_memory() {
    let shared_memory = Path::new("/dev/shm");
    if shared_memory.is_dir() {
        check_local(shared_memory, LocalOptions::default());
    } else {
        check_local(&std::env::temp_dir(), LocalOptions::default());
    }
}

#[test]
fn the_doubles_conform_while_they_do_no_harm() {
    conformance(|| {
        let flaky = FlakyStore::new(CrashStore::counting(Memory::new()));
        Arc::new(Arc::new(flaky) as Arc<dyn Store>)
    });
}
