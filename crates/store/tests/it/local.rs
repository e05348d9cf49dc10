//! What only a file system can do to a store: other names, links, full and broken disks, dead writers.

use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cairn_store::{ALIGNMENT, Error, Local, LocalOptions, MAX_GET_BYTES, PutMode, Store};
use tempfile::TempDir;

mod big;
mod death;
mod disk;

/// A store in a new folder on the disk that holds the build.
fn new_store() -> (TempDir, Local) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Local::new(folder.path().join("root"));
    (folder, store)
}

fn keys(store: &Local) -> Vec<String> {
    let found = store.list("").unwrap();
    found.into_iter().map(|meta| meta.key).collect()
}

/// The names of all files and folders directly inside `folder`.
fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn names_that_are_no_keys_are_invisible() {
    let (_folder, store) = new_store();
    store.put("a", b"", PutMode::Create).unwrap();
    let not_unicode = std::ffi::OsString::from_vec(vec![b'b', 0xFF]);
    File::create_new(store.root().join(not_unicode)).unwrap();
    File::create_new(store.root().join("back\\slash")).unwrap();
    File::create_new(store.root().join(".tmp-of-someone")).unwrap();
    std::fs::create_dir(store.root().join(".tmp-folder")).unwrap();
    assert_eq!(keys(&store), ["a"]);
    assert!(store.list_folders("").unwrap().is_empty());
    assert_eq!(store.sweep("").unwrap(), 0);
    assert_eq!(store.root().read_dir().unwrap().count(), 5);
}

#[test]
fn links_are_followed() {
    let (folder, store) = new_store();
    let elsewhere = Local::new(folder.path().join("elsewhere"));
    elsewhere.put("step/x", b"far", PutMode::Create).unwrap();
    store.put("near", b"near", PutMode::Create).unwrap();
    symlink(elsewhere.root(), store.root().join("linked")).unwrap();
    symlink("near", store.root().join("alias")).unwrap();
    symlink("nowhere", store.root().join("dangling")).unwrap();
    // A folder behind a link is listed by whoever names it, and by nobody else.
    assert_eq!(keys(&store), ["alias", "near"]);
    assert_eq!(store.list("linked").unwrap()[0].key, "linked/step/x");
    assert_eq!(store.list_folders("").unwrap(), ["linked"]);
    assert_eq!(store.get("alias").unwrap(), b"near");
    store.put("linked/y", b"", PutMode::Create).unwrap();
    assert!(elsewhere.head("y").unwrap().is_some());
    assert!(store.head("dangling").unwrap().is_none());
    let create = store.put("dangling", b"", PutMode::Create);
    assert!(matches!(create, Err(Error::AlreadyExists { .. })));
}

#[test]
fn nothing_is_moved_or_deleted_through_a_link() {
    let (folder, store) = new_store();
    let elsewhere = Local::new(folder.path().join("elsewhere"));
    elsewhere.put("deep/x", b"far", PutMode::Create).unwrap();
    store.put("near", b"near", PutMode::Create).unwrap();
    symlink(elsewhere.root(), store.root().join("linked")).unwrap();
    let refused = [
        store.delete("linked/deep/x"),
        store.rename("linked/deep/x", "x", PutMode::Create),
        store.rename("near", "linked/near", PutMode::Create),
    ];
    for refused in refused {
        assert!(
            matches!(refused, Err(Error::InvalidKey { .. })),
            "{refused:?}"
        );
    }
    store.sweep("").unwrap();
    assert!(elsewhere.head("deep/x").unwrap().is_some());
    // The link itself is the store's own.
    symlink("near", store.root().join("alias")).unwrap();
    store.delete("alias").unwrap();
    assert_eq!(keys(&store), ["near"]);
}

#[test]
fn links_that_go_round_in_circles_are_listed_once() {
    let (_folder, store) = new_store();
    store.put("a/x", b"", PutMode::Create).unwrap();
    for name in ["b", "c", "d"] {
        symlink(store.root(), store.root().join(name)).unwrap();
        symlink(store.root(), store.root().join("a").join(name)).unwrap();
    }
    symlink("itself", store.root().join("itself")).unwrap();
    assert_eq!(keys(&store), ["a/x"]);
    store.sweep("").unwrap();
}

#[test]
fn pipes_and_devices_are_no_objects_and_keep_nobody_waiting() {
    let (_folder, store) = new_store();
    store.put("x", b"", PutMode::Create).unwrap();
    let pipe = store.root().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    symlink("/dev/zero", store.root().join("zeros")).unwrap();
    for key in ["pipe", "zeros"] {
        assert!(
            matches!(store.get(key), Err(Error::NotFound { .. })),
            "{key}"
        );
        assert!(store.head(key).unwrap().is_none());
    }
    assert_eq!(keys(&store), ["x"]);
}

#[test]
fn what_is_private_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, store) = new_store();
    store.put_private("key", b"secret").unwrap();
    let mode = store
        .root()
        .join("key")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(
        store.put_private("key", b""),
        Err(Error::AlreadyExists { .. })
    ));
    assert_eq!(store.get("key").unwrap(), b"secret");
}

#[test]
fn the_root_appears_with_the_first_object_and_stays() {
    let (folder, _) = new_store();
    let store = Local::new(folder.path().join("deep/er/root"));
    assert!(store.list("").unwrap().is_empty());
    assert!(store.available_bytes().unwrap().is_some());
    assert!(!folder.path().join("deep").exists());
    store.put("a/b", b"", PutMode::Create).unwrap();
    store.delete("a/b").unwrap();
    assert!(names(store.root()).is_empty());
}

#[test]
fn a_folder_is_no_object_and_an_object_no_folder() {
    let (_folder, store) = new_store();
    store.put("a/b", b"kept", PutMode::Create).unwrap();
    let inside = store.put("a/b/c", b"", PutMode::Create);
    assert!(matches!(&inside, Err(Error::Io { .. })), "{inside:?}");
    assert!(inside.unwrap_err().hint().unwrap().contains("folder"));
    assert!(store.create("a/b/c", 10).is_err());
    let onto = store.put("a", b"", PutMode::Create);
    assert!(matches!(onto, Err(Error::AlreadyExists { .. })));
    assert!(store.put("a", b"", PutMode::Replace).is_err());
    assert!(store.delete("a").is_err());
    assert_eq!(store.get("a/b").unwrap(), b"kept");
    assert_eq!(names(store.root()), ["a"]);
    assert_eq!(names(&store.root().join("a")), ["b"]);
}

#[test]
fn a_file_that_shrinks_under_its_reader_is_truncated() {
    for options in [
        LocalOptions { direct: true },
        LocalOptions { direct: false },
    ] {
        let (folder, _) = new_store();
        let store = Local::with_options(folder.path(), options);
        let bytes = vec![1; 4 * ALIGNMENT];
        store.put("a", &bytes, PutMode::Create).unwrap();
        let reader = store.reader("a").unwrap();
        let file = File::options().write(true).open(folder.path().join("a"));
        file.unwrap().set_len(ALIGNMENT as u64 + 1).unwrap();
        let mut buffer = cairn_store::AlignedBuffer::new(bytes.len());
        let Err(Error::Truncated { wanted, got, .. }) = reader.read_at(0, &mut buffer) else {
            panic!("bytes that do not exist were read");
        };
        assert_eq!((wanted, got), (bytes.len() as u64, ALIGNMENT as u64 + 1));
    }
}

#[test]
fn an_object_too_large_for_memory_is_refused_whole_and_read_in_part() {
    let (_folder, store) = new_store();
    store.put("a", b"begin", PutMode::Create).unwrap();
    let file = File::options().write(true).open(store.root().join("a"));
    file.unwrap().set_len(MAX_GET_BYTES + 1).unwrap();
    let whole = store.get("a");
    assert!(matches!(whole, Err(Error::TooLarge { len, limit, .. })
        if len == MAX_GET_BYTES + 1 && limit == MAX_GET_BYTES));
    let most = store.get_prefix("a", usize::MAX);
    assert!(matches!(most, Err(Error::TooLarge { .. })));
    assert_eq!(store.get_prefix("a", 7).unwrap(), b"begin\0\0");
}

#[test]
fn files_of_other_machines_are_swept_after_a_day() {
    let (_folder, store) = new_store();
    store.put("a/kept", b"", PutMode::Create).unwrap();
    store.put("b/gone", b"", PutMode::Create).unwrap();
    let leave = |folder: &str, name: &str, age: Duration| {
        let file = File::create_new(store.root().join(folder).join(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    };
    let hour = Duration::from_secs(3600);
    for folder in ["a", "b"] {
        leave(
            folder,
            ".tmp-0000000000000000-0000000000000000-0",
            25 * hour,
        );
    }
    leave("a", ".tmp-0000000000000000-0000000000000000-1", 23 * hour);
    assert_eq!(keys(&store), ["a/kept", "b/gone"]);

    // The last object takes the folder with it, dead files and all.
    store.delete("b/gone").unwrap();
    assert_eq!(names(store.root()), ["a"]);
    assert_eq!(store.sweep("").unwrap(), 1);
    assert_eq!(store.sweep("").unwrap(), 0);
    store.delete("a/kept").unwrap();
    assert_eq!(
        names(&store.root().join("a")),
        [".tmp-0000000000000000-0000000000000000-1"]
    );
}
