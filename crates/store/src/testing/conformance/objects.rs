//! Whole objects: put, get, head, delete, and which keys exist.

use std::time::{Duration, SystemTime};

use super::{Check, SIZES, keys, pattern};
use crate::{Error, MAX_KEY_BYTES, MAX_SEGMENT_BYTES, PutMode, Store};

pub(super) const CHECKS: [Check; 9] = [
    every_size_survives_put_and_get,
    a_missing_object_is_missing_to_every_call,
    create_refuses_a_taken_key,
    replace_and_delete_show_at_once,
    an_object_keeps_its_bytes_under_another_key,
    a_rename_replaces_only_on_request,
    an_open_reader_never_mixes_versions,
    odd_but_valid_keys_are_distinct_objects,
    invalid_keys_are_refused_by_every_call,
];

/// What the folder of a store may take of the length that a bucket gives a key.
const FOLDER_BYTES: usize = 64;

fn every_size_survives_put_and_get(store: &dyn Store) {
    for (seed, len) in (0..).zip(SIZES) {
        let key = format!("sizes/{len}");
        let bytes = pattern(seed, len);
        store.put(&key, &bytes, PutMode::Create).expect("put");
        assert!(store.get(&key).expect("get") == bytes, "{len} bytes");
        for prefix in [0, 1, len / 2, len, len + 1, usize::MAX] {
            let got = store.get_prefix(&key, prefix).expect("get_prefix");
            assert!(got == bytes[..len.min(prefix)], "{prefix} of {len} bytes");
        }
        let meta = store.head(&key).expect("head").expect("it exists");
        assert_eq!((meta.key, meta.len), (key, len as u64));
        let age = match SystemTime::now().duration_since(meta.modified) {
            Ok(age) => age,
            Err(ahead) => ahead.duration(),
        };
        assert!(age < Duration::from_secs(3600), "modified {age:?} from now");
    }
}

fn a_missing_object_is_missing_to_every_call(store: &dyn Store) {
    store.put("a/b", b"here", PutMode::Create).expect("put");
    // A folder is no object, and nothing is inside an object.
    for key in ["none", "a", "a/c", "x/y/z", "a/b/c"] {
        assert!(matches!(store.get(key), Err(Error::NotFound { key: k }) if k == key));
        assert!(matches!(
            store.get_prefix(key, 1),
            Err(Error::NotFound { .. })
        ));
        assert!(matches!(store.reader(key), Err(Error::NotFound { .. })));
        assert_eq!(store.head(key).expect("head"), None, "{key}");
    }
    for key in ["none", "a/c", "x/y/z", "a/b/c"] {
        store.delete(key).expect("nothing to delete");
    }
    assert_eq!(keys(store, ""), ["a/b"]);
}

fn create_refuses_a_taken_key(store: &dyn Store) {
    store.put("a", b"first", PutMode::Create).expect("put");
    let again = store.put("a", b"second", PutMode::Create);
    assert!(matches!(again, Err(Error::AlreadyExists { key }) if key == "a"));
    assert!(matches!(
        store.create("a", 6),
        Err(Error::AlreadyExists { .. })
    ));
    assert_eq!(store.get("a").expect("get"), b"first");
}

fn replace_and_delete_show_at_once(store: &dyn Store) {
    for bytes in [b"one".as_slice(), b"longer", b"", b"x"] {
        store.put("a/b", bytes, PutMode::Replace).expect("replace");
        assert_eq!(store.get("a/b").expect("get"), bytes);
    }
    store.delete("a/b").expect("delete");
    store.delete("a/b").expect("delete again");
    assert!(matches!(store.get("a/b"), Err(Error::NotFound { .. })));
    assert!(keys(store, "").is_empty());
    store.put("a/b", b"new", PutMode::Create).expect("put");
    assert_eq!(store.get("a/b").expect("get"), b"new");
}

fn an_object_keeps_its_bytes_under_another_key(store: &dyn Store) {
    for (from, to) in [("a", "b"), ("b", "x/y/z"), ("x/y/z", "x/w"), ("x/w", "a")] {
        if from == "a" {
            store.put("a", b"bytes", PutMode::Create).expect("put");
        }
        store.rename(from, to, PutMode::Create).expect("rename");
        assert_eq!(keys(store, ""), [to]);
        assert_eq!(store.get(to).expect("get"), b"bytes");
    }
    let missing = store.rename("none", "b", PutMode::Replace);
    assert!(matches!(missing, Err(Error::NotFound { key }) if key == "none"));
    assert_eq!(keys(store, ""), ["a"]);
}

fn a_rename_replaces_only_on_request(store: &dyn Store) {
    store.put("old", b"old", PutMode::Create).expect("put");
    store.put("new/one", b"new", PutMode::Create).expect("put");
    let taken = store.rename("new/one", "old", PutMode::Create);
    assert!(matches!(taken, Err(Error::AlreadyExists { key }) if key == "old"));
    assert_eq!(keys(store, ""), ["new/one", "old"]);
    store
        .rename("new/one", "old", PutMode::Replace)
        .expect("rename");
    assert_eq!(keys(store, ""), ["old"]);
    assert_eq!(store.get("old").expect("get"), b"new");
}

fn an_open_reader_never_mixes_versions(store: &dyn Store) {
    let old = pattern(1, 50_000);
    store.put("a", &old, PutMode::Create).expect("put");
    let reader = store.reader("a").expect("reader");
    let disturbances: [&dyn Fn() -> Result<(), Error>; 2] = [
        &|| store.put("a", &pattern(2, 60_000), PutMode::Replace),
        &|| store.delete("a"),
    ];
    for disturb in disturbances {
        disturb().expect("replace or delete");
        let mut buffer = vec![0; old.len()];
        if reader.read_at(0, &mut buffer).is_ok() {
            assert!(
                buffer == old,
                "bytes that were not there when it was opened"
            );
        }
        assert_eq!(reader.len(), old.len() as u64);
    }
}

fn odd_but_valid_keys_are_distinct_objects(store: &dyn Store) {
    let long_segment = "s".repeat(MAX_SEGMENT_BYTES);
    let wide_segment = "é".repeat(MAX_SEGMENT_BYTES / 2);
    let long_key = "k/".repeat((MAX_KEY_BYTES - FOLDER_BYTES) / 2 - 1) + "kk";
    let mut odd = [
        "模型/шаг/🪨",
        "e\u{301}",
        "é",
        "a b",
        " ",
        "...",
        "..a",
        ".hidden",
        ".tmp",
        "tmp-1",
        "%2e%2e%2fa",
        "name@0:4,0:8#1:2",
        "line\nbreak",
        "-rf",
        "*?[]",
        &long_segment,
        &wide_segment,
        &long_key,
    ];
    for key in odd {
        let result = store.put(key, key.as_bytes(), PutMode::Create);
        result.unwrap_or_else(|error| panic!("{key:?}: {error:?}"));
    }
    for key in odd {
        assert_eq!(store.get(key).expect(key), key.as_bytes());
    }
    odd.sort_unstable();
    assert_eq!(keys(store, ""), odd);
}

fn invalid_keys_are_refused_by_every_call(store: &dyn Store) {
    let long_segment = "s".repeat(MAX_SEGMENT_BYTES + 1);
    let long_key = "k/".repeat(MAX_KEY_BYTES / 2) + "k";
    let invalid = [
        "/a",
        "a/",
        "a//b",
        "/",
        ".",
        "..",
        "../a",
        "a/../../b",
        "./a",
        "a\0b",
        "a\\b",
        ".tmp-a",
        "a/.tmp-b/c",
        &long_segment,
        &long_key,
    ];
    let refused = |error| matches!(error, Error::InvalidKey { .. });
    for key in invalid {
        assert!(store.put(key, b"", PutMode::Create).is_err_and(refused));
        assert!(store.put(key, b"", PutMode::Replace).is_err_and(refused));
        assert!(store.create(key, 0).is_err_and(refused));
        assert!(store.rename(key, "b", PutMode::Create).is_err_and(refused));
        assert!(store.rename("b", key, PutMode::Create).is_err_and(refused));
        assert!(store.reader(key).is_err_and(refused));
        assert!(store.get(key).is_err_and(refused));
        assert!(store.get_prefix(key, 1).is_err_and(refused));
        assert!(store.head(key).is_err_and(refused));
        assert!(store.delete(key).is_err_and(refused));
        assert!(store.list(key).is_err_and(refused), "{key:?}");
        assert!(store.list_folders(key).is_err_and(refused), "{key:?}");
        assert!(store.sweep(key).is_err_and(refused), "{key:?}");
        assert!(store.settle(key).is_err_and(refused), "{key:?}");
    }
    assert!(store.put("", b"", PutMode::Create).is_err_and(refused));
    assert!(keys(store, "").is_empty());
}
