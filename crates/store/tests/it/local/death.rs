//! Writers that are killed, seen by the processes after and beside them.
//!
//! The writer is this test program again, running one ignored test in a process of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cairn_store::{ALIGNMENT, Error, Local, PutMode, Store};

use super::{keys, names, new_store};

const ROOT: &str = "CAIRN_STORE_TEST_ROOT";
const READY: &str = "the object is half written";

#[test]
#[ignore = "the other tests of this file run it in a process of its own"]
fn writer_that_never_finishes() {
    let store = Local::new(std::env::var_os(ROOT).unwrap());
    let writer = store.create("a/b", 2 * ALIGNMENT as u64).unwrap();
    writer.write_at(0, &[1; ALIGNMENT]).unwrap();
    println!("{READY}");
    std::thread::sleep(Duration::from_secs(600));
    drop(writer);
}

/// Starts the writer, and returns when its object is half written.
fn start_writer(root: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "local::death::writer_that_never_finishes"])
        .args(["--ignored", "--nocapture"])
        .env(ROOT, root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let ready = output.lines().any(|line| line.unwrap().contains(READY));
    assert!(ready, "the writer did not start");
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_writer_leaves_no_object_and_its_file_goes_with_the_next_put() {
    let (_folder, store) = new_store();
    kill(start_writer(store.root()));
    let folder = store.root().join("a");
    assert_eq!(names(&folder).len(), 1);
    assert!(keys(&store).is_empty());
    assert!(store.head("a/b").unwrap().is_none());

    store.put("a/b", b"whole", PutMode::Create).unwrap();
    assert_eq!(names(&folder), ["b"]);
    assert_eq!(store.get("a/b").unwrap(), b"whole");
}

#[test]
fn what_a_killed_writer_left_is_swept_with_its_folder() {
    let (_folder, store) = new_store();
    kill(start_writer(store.root()));
    assert_eq!(store.sweep("").unwrap(), 1);
    assert!(names(store.root()).is_empty());
}

#[test]
fn a_living_writer_keeps_its_file() {
    let (_folder, store) = new_store();
    let child = start_writer(store.root());
    let folder = store.root().join("a");
    let [file] = &names(&folder)[..] else {
        panic!("one unpublished file");
    };
    assert_eq!(store.sweep("").unwrap(), 0);
    store.put("a/b", b"first", PutMode::Create).unwrap();
    store.put("a/b", b"again", PutMode::Replace).unwrap();
    let taken = store.create("a/b", 1);
    assert!(matches!(taken, Err(Error::AlreadyExists { .. })));
    store.delete("a/b").unwrap();
    assert_eq!(names(&folder), [file.as_str()]);
    kill(child);
}
