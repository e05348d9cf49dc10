//! Disks that are full, read-only or without direct I/O.
//!
//! Small disks are mounted in a namespace of their own, by running this test program again there.
//! Where that is not allowed, what every machine can show is checked instead.

use std::path::PathBuf;
use std::process::Command;

use cairn_store::testing::pattern;
use cairn_store::{Error, Local, LocalOptions, PutMode, Store};

use super::{keys, names, new_store};
use crate::conformance::check_local;

const ROOT: &str = "CAIRN_STORE_TEST_ROOT";

/// Runs an ignored test of this file on a new disk, or returns `false` if none can be mounted.
fn run_on_disk(kind: &str, options: &str, test: &str) -> bool {
    let place = tempfile::tempdir().unwrap();
    let mount =
        format!("mount -t {kind} -o {options} none \"${ROOT}\" || exit 1; exec \"$0\" \"$@\"");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("local::disk::{test}"), "--ignored"])
        .env(ROOT, place.path())
        .output();
    let Ok(output) = output else {
        return false;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    let ran = printed.contains("running 1 test");
    assert!(!ran || output.status.success(), "{printed}");
    ran
}

/// The disk that was mounted for this process.
fn mounted() -> PathBuf {
    std::env::var_os(ROOT).unwrap().into()
}

fn no_space(result: Result<(), Error>) -> (u64, u64) {
    match result {
        Err(Error::NoSpace {
            needed, available, ..
        }) => (needed, available),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_object_that_cannot_fit_is_refused_before_its_first_byte() {
    let (_folder, store) = new_store();
    let before = store.available_bytes().unwrap().unwrap();
    let (needed, available) = no_space(store.create("a/b", 1 << 60).map(drop));
    assert_eq!(needed, 1 << 60);
    assert!(available > 0 && before > 0);
    assert!(!store.root().exists());
}

#[test]
fn a_full_disk_loses_nothing() {
    if !run_on_disk("tmpfs", "size=1m", "small_disk") {
        an_object_that_cannot_fit_is_refused_before_its_first_byte();
    }
}

#[test]
#[ignore = "another test runs it on a small disk"]
fn small_disk() {
    let store = Local::new(mounted());
    let free = || store.available_bytes().unwrap().unwrap();
    let before = free();
    assert!((1..=1 << 20).contains(&before));

    // Space is checked, then really taken, and given back.
    let too_much = store.create("a", before + 1).map(drop);
    assert_eq!(no_space(too_much), (before + 1, before));
    let half = store.create("half", before / 2).unwrap();
    assert!(free() <= before / 2);
    let second = store.create("other", before / 2 + 4096).map(drop);
    assert_eq!(no_space(second), (before / 2 + 4096, free()));
    drop(half);
    assert_eq!(free(), before);

    // A put that does not fit leaves nothing, and the old object as it was.
    store.put("kept", b"old", PutMode::Create).unwrap();
    let large = pattern(1, 2 << 20);
    for key in ["kept", "new/object"] {
        let (needed, _) = no_space(store.put(key, &large, PutMode::Replace));
        assert_eq!(needed, 2 << 20);
    }
    assert_eq!(store.get("kept").unwrap(), b"old");
    assert_eq!(keys(&store), ["kept"]);
    assert_eq!(names(store.root()), ["kept"]);

    // All of it can be used.
    let rest = usize::try_from(free()).unwrap();
    let writer = store.create("rest", rest as u64).unwrap();
    writer.write_at(0, &large[..rest]).unwrap();
    writer.finish().unwrap();
    assert!(store.get("rest").unwrap() == large[..rest]);
}

#[test]
fn a_disk_without_direct_io_conforms() {
    let inside = "disk_without_direct_io";
    if !run_on_disk("ramfs", "mode=777", inside) {
        check_local(&std::env::temp_dir(), LocalOptions::default());
    }
}

#[test]
#[ignore = "another test runs it on a disk without direct I/O"]
fn disk_without_direct_io() {
    check_local(&mounted(), LocalOptions::default());
}

#[test]
fn a_read_only_disk_says_so() {
    if !run_on_disk("tmpfs", "ro", "read_only_disk") {
        a_place_the_kernel_owns_is_refused();
    }
}

#[test]
#[ignore = "another test runs it on a read-only disk"]
fn read_only_disk() {
    let store = Local::new(mounted());
    let read_only = |error| matches!(error, Error::ReadOnly { .. });
    assert!(store.put("a", b"", PutMode::Create).is_err_and(read_only));
    assert!(store.put("b/c", b"", PutMode::Create).is_err_and(read_only));
    assert!(store.list("").unwrap().is_empty());
}

#[test]
fn a_place_the_kernel_owns_is_refused() {
    // Permission bits do not stop an administrator, but here nobody makes files.
    let store = Local::new("/sys/cairn");
    let refused = store.put("a", b"", PutMode::Create);
    assert!(
        matches!(
            refused,
            Err(Error::PermissionDenied { .. } | Error::ReadOnly { .. })
        ),
        "{refused:?}"
    );
}

#[test]
fn a_root_inside_a_file_is_refused() {
    let (folder, _) = new_store();
    let file = folder.path().join("file");
    std::fs::File::create_new(&file).unwrap();
    let store = Local::new(file.join("root"));
    let put = store.put("a", b"", PutMode::Create);
    assert!(matches!(&put, Err(Error::Io { source, .. })
        if source.kind() == std::io::ErrorKind::NotADirectory));
    assert!(store.create("a", 1).is_err());
    assert!(store.list("").unwrap().is_empty());
    assert!(matches!(store.get("a"), Err(Error::NotFound { .. })));
}
