//! Buckets keep every promise of a store, whatever happens on the way to them.
//!
//! Against the client's own bucket in memory, a server in this process that fails on request, and, if `CAIRN_TEST_BUCKET`
//! names a bucket of a real one (its settings in the environment), that one.

mod errors;
mod mishaps;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_store::testing::{BucketServer, Mishap, MishapKind, conformance, pattern};
use cairn_store::{
    Client, Error, MAX_KEY_BYTES, Objects, PutMode, Store, examine, open, open_with,
};
use object_store::memory::InMemory;

const PART: usize = 8 << 20;

fn in_memory(folder: &str) -> Arc<dyn Store> {
    let client: Arc<dyn Client> = Arc::new(InMemory::new());
    Arc::new(Objects::new(client, "s3://bucket", folder).unwrap())
}

/// A folder of the bucket of a server.
fn folder_of(server: &BucketServer, folder: &str) -> Arc<dyn Store> {
    open_with(&server.url(folder), &server.options()).unwrap()
}

/// Writes an object of three parts, up to but without its end.
fn begin(store: &dyn Store, key: &str, bytes: &[u8]) -> Box<dyn cairn_store::ObjectWriter> {
    let writer = store.create(key, bytes.len() as u64).unwrap();
    for (index, piece) in bytes.chunks(PART).enumerate() {
        writer.write_at((index * PART) as u64, piece).unwrap();
    }
    writer
}

#[test]
fn a_bucket_in_memory_conforms() {
    conformance(|| in_memory(""));
    conformance(|| in_memory("runs/7b"));
}

#[test]
fn a_bucket_of_a_server_conforms() {
    let server = BucketServer::start();
    let count = AtomicU64::new(0);
    conformance(|| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        folder_of(&server, &format!("test-{number}"))
    });
    assert_eq!(server.upload_count(), 0);
}

#[test]
fn a_bucket_that_ignores_conditions_keeps_all_other_promises() {
    let server = BucketServer::start();
    server.ignore_conditions();
    let count = AtomicU64::new(0);
    conformance(|| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        folder_of(&server, &format!("test-{number}"))
    });
}

#[test]
fn a_key_that_is_too_long_with_its_folder_is_refused_before_it_is_sent() {
    let server = BucketServer::start();
    let store = folder_of(&server, "folder");
    let key = "k/".repeat(MAX_KEY_BYTES / 2 - 4) + "k";
    store.put(&key, b"fits", PutMode::Create).unwrap();
    let refused = store.put(&format!("{key}/k"), b"", PutMode::Create);
    assert!(matches!(refused, Err(Error::InvalidKey { .. })));
}

/// `cargo xtask conformance` names buckets of real servers, one after another.
#[test]
fn a_bucket_of_a_real_server_conforms() {
    let Ok(url) = std::env::var("CAIRN_TEST_BUCKET") else {
        return;
    };
    let count = AtomicU64::new(0);
    let process = std::process::id();
    conformance(|| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        open(&format!("{url}/test-{process}-{number}")).unwrap()
    });
}

#[test]
fn large_objects_are_made_from_parts_in_any_order() {
    let server = BucketServer::start();
    let store = folder_of(&server, "a");
    let bytes = pattern(7, 3 * PART + 12_345);
    let writer = store.create("large", bytes.len() as u64).unwrap();
    // Pieces that are no parts, the last first, from several threads.
    let pieces: Vec<(usize, &[u8])> = bytes.chunks(3 << 20).enumerate().collect();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let (writer, pieces) = (&writer, &pieces);
            let mine = move |(number, _): &&(usize, &[u8])| number % 2 == half;
            scope.spawn(move || {
                for (number, piece) in pieces.iter().rev().filter(mine) {
                    let offset = (*number * (3 << 20)) as u64;
                    writer.write_at(offset, piece).unwrap();
                }
            });
        }
    });
    assert!(store.head("large").unwrap().is_none());
    writer.finish().unwrap();
    let reader = store.reader("large").unwrap();
    let mut back = vec![0; bytes.len()];
    reader.read_at(0, &mut back).unwrap();
    assert!(back == bytes);
    let mut some = vec![0; 20 << 20];
    reader.read_at(1_000_001, &mut some).unwrap();
    assert!(some[..] == bytes[1_000_001..][..20 << 20]);
    assert!(reader.gap_bytes() > 0);
    store.rename("large", "b/renamed", PutMode::Create).unwrap();
    assert_eq!(server.keys(), ["a/b/renamed"]);
    assert_eq!(store.get("b/renamed").unwrap().len(), bytes.len());
}

#[test]
fn what_nobody_finishes_is_given_up() {
    let server = BucketServer::start();
    let store = folder_of(&server, "a");
    let writer = store.create("large", 3 * PART as u64).unwrap();
    writer.write_at(0, &pattern(1, PART)).unwrap();
    assert_eq!(server.upload_count(), 1);
    drop(writer);
    assert_eq!(server.upload_count(), 0);
    let writer = store.create("large", 3 * PART as u64).unwrap();
    assert!(matches!(writer.finish(), Err(Error::Incomplete { .. })));
    assert!(server.keys().is_empty() && server.upload_count() == 0);
}

#[test]
fn uploads_of_the_dead_are_listed_and_swept_when_they_are_old() {
    let server = BucketServer::start();
    let store = folder_of(&server, "run");
    let elsewhere = folder_of(&server, "runs");
    // A process that dies gives nothing up.
    for (store, key) in [(&store, "step/a b"), (&store, "step/c"), (&elsewhere, "d")] {
        std::mem::forget(store.create(key, 3 * PART as u64).unwrap());
    }
    let uploads = store.uploads("").unwrap();
    let keys: Vec<&str> = uploads.iter().map(|upload| upload.key.as_str()).collect();
    assert_eq!(keys, ["step/a b", "step/c"]);
    assert!(store.uploads("other").unwrap().is_empty());
    assert_eq!(store.sweep("").unwrap(), 0, "they may be alive");
    store.abort(&uploads[0]).unwrap();
    store.abort(&uploads[0]).unwrap();
    assert_eq!(server.upload_count(), 2);
    server.age_uploads(Duration::from_secs(25 * 60 * 60));
    assert_eq!(store.sweep("").unwrap(), 1);
    assert_eq!(server.upload_count(), 1, "that of another folder");
}

#[test]
fn a_service_that_cannot_list_uploads_has_none_to_sweep() {
    let server = BucketServer::start();
    let store = folder_of(&server, "run");
    std::mem::forget(store.create("large", 3 * PART as u64).unwrap());
    for _ in 0..2 {
        server.add(Mishap {
            request: vec!["GET", "uploads"],
            kind: MishapKind::Refuse(501, "NotImplemented"),
        });
    }
    assert!(store.uploads("").unwrap().is_empty());
    assert_eq!(store.sweep("").unwrap(), 0);
    assert_eq!(store.uploads("").unwrap().len(), 1);
}

#[test]
fn an_examination_finds_what_works_and_leaves_nothing() {
    let server = BucketServer::start();
    let health = examine(folder_of(&server, "run").as_ref()).unwrap();
    assert!(health.is_good(), "{health:?}");
    server.ignore_conditions();
    let health = examine(folder_of(&server, "run").as_ref()).unwrap();
    let weak = health.findings.iter().filter(|finding| !finding.works);
    let weak: Vec<&str> = weak.map(|finding| finding.name).collect();
    assert_eq!(weak, ["conditional create"]);
    assert!(server.keys().is_empty() && server.upload_count() == 0);
}
