//! Answers that are lost, conflicts, services that ignore conditions, servers that die: nothing is lost, and nobody is told what is not so.

use std::time::Duration;

use cairn_store::testing::{BucketServer, Mishap, MishapKind, pattern};
use cairn_store::{Error, PutMode, open_with};

use super::{PART, begin, folder_of};

fn lose(request: &[&'static str]) -> Mishap {
    Mishap {
        request: request.to_vec(),
        kind: MishapKind::LoseAnswer,
    }
}

fn refuse(request: &[&'static str], status: u16, code: &'static str) -> Mishap {
    Mishap {
        request: request.to_vec(),
        kind: MishapKind::Refuse(status, code),
    }
}

#[test]
fn a_winner_whose_answer_is_lost_knows_that_it_won() {
    let server = BucketServer::start();
    let store = folder_of(&server, "run");
    store.put("before", b"", PutMode::Create).unwrap();
    server.add(lose(&["PUT", "COMMIT"]));
    store.put("COMMIT", b"mine", PutMode::Create).unwrap();
    // Another with the same bytes has not won.
    let other = folder_of(&server, "run").put("COMMIT", b"mine", PutMode::Create);
    assert!(matches!(other, Err(Error::AlreadyExists { .. })));
    server.add(lose(&["PUT", "COMMIT"]));
    let late = store.put("COMMIT", b"other", PutMode::Create);
    assert!(matches!(late, Err(Error::AlreadyExists { .. })));
    assert_eq!(store.get("COMMIT").unwrap(), b"mine");
}

#[test]
fn an_object_that_a_dying_server_left_without_its_mark_is_its_makers() {
    let server = BucketServer::start();
    let store = folder_of(&server, "run");
    store.put("before", b"", PutMode::Create).unwrap();
    let tear = || Mishap {
        request: vec!["PUT", "part"],
        kind: MishapKind::Tear,
    };
    server.add(tear());
    store.put("part", b"mine", PutMode::Create).unwrap();
    server.add(tear());
    let other = store.put("part", b"else", PutMode::Create);
    assert!(matches!(other, Err(Error::AlreadyExists { .. })));
    assert_eq!(store.get("part").unwrap(), b"mine");
    // What was put in place of another is nobody's to create, whatever its bytes are.
    store.put("part", b"mine", PutMode::Replace).unwrap();
    let late = store.put("part", b"mine", PutMode::Create);
    assert!(matches!(late, Err(Error::AlreadyExists { .. })));
}

#[test]
fn a_conflict_of_conditions_is_tried_again() {
    let server = BucketServer::start();
    let store = folder_of(&server, "run");
    store.put("before", b"", PutMode::Create).unwrap();
    for _ in 0..3 {
        server.add(refuse(
            &["PUT", "COMMIT"],
            409,
            "ConditionalRequestConflict",
        ));
    }
    store.put("COMMIT", b"mine", PutMode::Create).unwrap();
    assert_eq!(store.get("COMMIT").unwrap(), b"mine");
}

#[test]
fn an_end_whose_answer_is_lost_is_an_end() {
    let server = BucketServer::start();
    let store = folder_of(&server, "run");
    let bytes = pattern(3, 2 * PART + 5);
    let writer = begin(store.as_ref(), "large", &bytes);
    server.add(lose(&["POST", "uploadId"]));
    writer.finish().unwrap();
    assert!(store.get("large").unwrap() == bytes);
    assert_eq!(server.upload_count(), 0);
}

#[test]
fn parts_are_sent_again_after_troubles_that_pass() {
    let server = BucketServer::start();
    let store = folder_of(&server, "run");
    server.add(refuse(&["PUT", "partNumber=1&"], 503, "SlowDown"));
    server.add(lose(&["PUT", "partNumber=2&"]));
    let bytes = pattern(4, 3 * PART);
    begin(store.as_ref(), "large", &bytes).finish().unwrap();
    assert!(store.get("large").unwrap() == bytes);
}

#[test]
fn a_part_that_cannot_be_sent_fails_the_object_and_leaves_nothing() {
    let server = BucketServer::start();
    let store = folder_of(&server, "run");
    server.add(refuse(&["PUT", "partNumber=2&"], 403, "AccessDenied"));
    let bytes = pattern(5, 3 * PART);
    let writer = store.create("large", bytes.len() as u64).unwrap();
    let written = bytes
        .chunks(PART)
        .enumerate()
        .try_for_each(|(index, piece)| writer.write_at((index * PART) as u64, piece));
    let failed = written.and_then(|()| writer.finish()).unwrap_err();
    assert!(
        matches!(failed, Error::PermissionDenied { .. }),
        "{failed:?}"
    );
    assert!(server.keys().is_empty());
    assert_eq!(server.upload_count(), 0);
}

#[test]
fn a_service_that_ignores_conditions_is_found_out_and_keys_stay_taken() {
    let server = BucketServer::start();
    server.ignore_conditions();
    let store = folder_of(&server, "run");
    assert!(!store.has_one_winner().unwrap());
    assert!(server.keys().is_empty(), "the probe leaves nothing");
    store.put("COMMIT", b"first", PutMode::Create).unwrap();
    let second = store.put("COMMIT", b"second", PutMode::Create);
    assert!(matches!(second, Err(Error::AlreadyExists { .. })));
    assert_eq!(store.get("COMMIT").unwrap(), b"first");
    server.take_requests();
    assert!(!store.has_one_winner().unwrap());
    assert!(server.take_requests().is_empty(), "it is asked once");
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_save_and_comes_back_gets_all_of_it() {
    let mut server = BucketServer::start();
    let store = folder_of(&server, "run");
    let bytes = pattern(6, 4 * PART + 100);
    server.add(Mishap {
        request: vec!["PUT", "partNumber=2&"],
        kind: MishapKind::Die,
    });
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| begin(store.as_ref(), "large", &bytes).finish());
        // However long it is gone, within the deadline: all of it arrives.
        while server.is_up() {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.restart();
        saving.join().unwrap().unwrap();
    });
    assert!(store.get("large").unwrap() == bytes);
}

#[test]
fn a_server_that_stays_away_is_told_when_the_tries_are_over() {
    let mut server = BucketServer::start();
    let options = [
        server.options(),
        vec![("max_retries".to_owned(), "1".to_owned())],
    ]
    .concat();
    let store = open_with(&server.url("run"), &options).unwrap();
    server.stop();
    let failed = store.get("a").unwrap_err();
    assert!(matches!(failed, Error::Unreachable { .. }), "{failed:?}");
    assert!(failed.is_retryable());
}
