//! What is in which folder.

use std::time::Duration;

use super::{Check, keys};
use crate::{PutMode, Store};

pub(super) const CHECKS: [Check; 4] = [
    an_empty_store_lists_nothing,
    a_prefix_is_a_folder_and_not_a_beginning,
    keys_are_sorted_as_text,
    folders_go_with_their_last_object,
];

fn fill(store: &dyn Store, keys: &[&str]) {
    for key in keys {
        let result = store.put(key, key.as_bytes(), PutMode::Create);
        result.expect("put");
    }
}

fn folders(store: &dyn Store, prefix: &str) -> Vec<String> {
    store.list_folders(prefix).expect("a folder can be listed")
}

fn files(store: &dyn Store, prefix: &str) -> Vec<String> {
    let listed = store.list_files(prefix).expect("a folder can be listed");
    listed.into_iter().map(|meta| meta.key).collect()
}

fn an_empty_store_lists_nothing(store: &dyn Store) {
    for prefix in ["", "a", "a/b"] {
        assert!(keys(store, prefix).is_empty());
        assert!(folders(store, prefix).is_empty());
        assert_eq!(store.sweep(prefix).expect("sweep"), 0);
        store.settle(prefix).expect("nothing has to be durable");
    }
}

fn a_prefix_is_a_folder_and_not_a_beginning(store: &dyn Store) {
    let all = ["a/b/c", "a/b/d/e", "a/bc/d", "a/x", "ab/c", "b"];
    fill(store, &all);
    assert_eq!(keys(store, ""), all);
    assert_eq!(keys(store, "a"), ["a/b/c", "a/b/d/e", "a/bc/d", "a/x"]);
    assert_eq!(keys(store, "a/b"), ["a/b/c", "a/b/d/e"]);
    assert_eq!(keys(store, "a/b/d"), ["a/b/d/e"]);
    for nothing in ["a/b/c", "b", "c", "a/b/c/d"] {
        assert!(keys(store, nothing).is_empty(), "{nothing}");
        assert!(folders(store, nothing).is_empty(), "{nothing}");
    }
    assert_eq!(files(store, ""), ["b"]);
    assert_eq!(files(store, "a"), ["a/x"]);
    assert_eq!(files(store, "a/b"), ["a/b/c"]);
    assert!(files(store, "a/b/c").is_empty());
    assert_eq!(folders(store, ""), ["a", "ab"]);
    assert_eq!(folders(store, "a"), ["b", "bc"]);
    assert_eq!(folders(store, "a/b"), ["d"]);
    assert!(folders(store, "ab").is_empty());
    for meta in store.list("").expect("list") {
        assert_eq!(meta.len, meta.key.len() as u64);
        let head = store.head(&meta.key).expect("head").expect("it is listed");
        assert_eq!((&head.key, head.len), (&meta.key, meta.len));
        // Of a single object, services tell the time in whole seconds.
        let apart = meta.modified.duration_since(head.modified);
        let apart = apart.unwrap_or_else(|earlier| earlier.duration());
        assert!(apart < Duration::from_secs(1), "{meta:?} {head:?}");
    }
}

fn keys_are_sorted_as_text(store: &dyn Store) {
    // `-` and `.` come before `/`, and `0` after it.
    let sorted = ["a-b/c", "a.b", "a/b", "a/é", "a0", "step-10", "step-9"];
    let mut shuffled = sorted;
    shuffled.reverse();
    fill(store, &shuffled);
    assert_eq!(keys(store, ""), sorted);
    assert_eq!(folders(store, ""), ["a", "a-b"]);
}

fn folders_go_with_their_last_object(store: &dyn Store) {
    fill(store, &["a/b/c/1", "a/b/c/2", "a/d"]);
    store.delete("a/b/c/1").expect("delete");
    assert_eq!(folders(store, "a/b"), ["c"]);
    store.delete("a/b/c/2").expect("delete");
    assert!(folders(store, "a").is_empty());
    assert_eq!(keys(store, ""), ["a/d"]);
    store.delete("a/d").expect("delete");
    assert!(folders(store, "").is_empty());
    fill(store, &["a"]);
    assert_eq!(keys(store, ""), ["a"]);
}
