//! The double that fails does so where its rules say, and nowhere else.

use std::time::{Duration, Instant};

use cairn_store::testing::{Fault, FlakyStore, Operation, Rule, pattern};
use cairn_store::{ALIGNMENT, Error, Memory, PutMode, Store};

fn store_with(rule: Rule) -> FlakyStore<Memory> {
    let store = FlakyStore::new(Memory::new());
    let put = store.put("data", &pattern(1, 10_000), PutMode::Create);
    put.unwrap();
    store.add(rule);
    store
}

#[test]
fn errors_have_the_meaning_the_real_ones_have() {
    let fail_with = |fault| {
        let store = store_with(Rule::new([Operation::Put], fault));
        let error = store.put("a", b"1234", PutMode::Create).unwrap_err();
        assert!(store.inner().head("a").unwrap().is_none());
        error
    };
    let full = fail_with(Fault::NO_SPACE);
    assert!(matches!(full, Error::NoSpace { needed: 4, .. }));
    let denied = fail_with(Fault::DENIED);
    assert!(matches!(denied, Error::PermissionDenied { .. }));
    let read_only = fail_with(Fault::READ_ONLY);
    assert!(matches!(read_only, Error::ReadOnly { .. }));
    let broken = fail_with(Fault::IO);
    assert!(matches!(&broken, Error::Io { .. }) && !broken.is_retryable());
    let slow = fail_with(Fault::TIMED_OUT);
    assert!(matches!(&slow, Error::Io { .. }) && slow.is_retryable());
}

#[test]
fn rules_choose_operation_key_and_number() {
    let rule = Rule::new([Operation::Put, Operation::Delete], Fault::IO);
    let store = store_with(rule.on("COMMIT").nth(2));
    let put = |key: &str| store.put(key, b"", PutMode::Replace);
    put("COMMIT").unwrap();
    put("other").unwrap();
    store.get("COMMIT").unwrap();
    store.delete("step/COMMIT").unwrap();
    put("COMMIT").unwrap_err();
    put("COMMIT").unwrap();
    store.add(Rule::new([Operation::Put], Fault::IO));
    put("other").unwrap_err();
    store.clear();
    put("other").unwrap();
}

#[test]
fn every_operation_can_fail() {
    let store = store_with(Rule::new([Operation::Head], Fault::IO));
    let reader = store.reader("data").unwrap();
    let first = store.create("first", 1).unwrap();
    let second = store.create("second", 1).unwrap();
    second.write_at(0, b"x").unwrap();
    store.add(Rule::new(
        [
            Operation::Create,
            Operation::Write,
            Operation::Finish,
            Operation::Open,
            Operation::Read,
            Operation::List,
            Operation::Rename,
            Operation::Delete,
            Operation::Sweep,
        ],
        Fault::IO,
    ));
    let failed = |error| matches!(error, Error::Io { .. });
    assert!(store.head("data").is_err_and(failed));
    assert!(store.create("a", 1).is_err_and(failed));
    assert!(first.write_at(0, b"x").is_err_and(failed));
    assert!(second.finish().is_err_and(failed));
    assert!(store.reader("data").is_err_and(failed));
    assert!(store.get("data").is_err_and(failed));
    assert!(reader.read_at(0, &mut [0]).is_err_and(failed));
    assert!(store.list("").is_err_and(failed));
    assert!(store.list_folders("").is_err_and(failed));
    let renamed = store.rename("data", "other", PutMode::Create);
    assert!(renamed.is_err_and(failed));
    assert!(store.delete("data").is_err_and(failed));
    assert!(store.sweep("").is_err_and(failed));
    assert_eq!(store.inner().list("").unwrap().len(), 1);
}

#[test]
fn a_failed_write_can_be_tried_again() {
    let store = store_with(Rule::new([Operation::Write], Fault::IO).nth(1));
    let bytes = pattern(2, 2 * ALIGNMENT);
    let writer = store.create("a", bytes.len() as u64).unwrap();
    writer.write_at(0, &bytes[..ALIGNMENT]).unwrap();
    let rest = (ALIGNMENT as u64, &bytes[ALIGNMENT..]);
    writer.write_at(rest.0, rest.1).unwrap_err();
    writer.write_at(rest.0, rest.1).unwrap();
    writer.finish().unwrap();
    assert!(store.get("a").unwrap() == bytes);
}

#[test]
fn a_lost_answer_hides_a_success() {
    let errno = 5;
    let store = store_with(Rule::new([Operation::Put], Fault::FailAfter(errno)).nth(0));
    store.put("a", b"x", PutMode::Create).unwrap_err();
    let again = store.put("a", b"x", PutMode::Create);
    assert!(matches!(again, Err(Error::AlreadyExists { .. })));
}

#[test]
fn a_stall_takes_time_and_then_works() {
    let delay = Duration::from_millis(30);
    let store = store_with(Rule::new([Operation::Open], Fault::Stall(delay)));
    let start = Instant::now();
    assert!(store.get("data").unwrap() == pattern(1, 10_000));
    assert!(start.elapsed() >= delay);
}

#[test]
fn a_flipped_bit_shows_in_every_read_of_its_byte() {
    let fault = Fault::FlipBit {
        offset: 5000,
        bit: 3,
    };
    let store = store_with(Rule::new([Operation::Read], fault));
    let mut damaged = pattern(1, 10_000);
    damaged[5000] ^= 1 << 3;
    assert!(store.get("data").unwrap() == damaged);
    let reader = store.reader("data").unwrap();
    for (start, end) in [(0, 5000), (5000, 5001), (4990, 5010), (5001, 10_000)] {
        let mut buffer = vec![0; end - start];
        reader.read_at(start as u64, &mut buffer).unwrap();
        assert!(buffer == damaged[start..end], "{start}..{end}");
    }
}

#[test]
fn a_truncated_object_ends_early_for_every_reader() {
    let fault = Fault::Truncate { len: 6000 };
    let store = store_with(Rule::new([Operation::Open, Operation::Head], fault));
    assert_eq!(store.head("data").unwrap().unwrap().len, 6000);
    assert!(store.get("data").unwrap() == pattern(1, 10_000)[..6000]);
    let reader = store.reader("data").unwrap();
    assert_eq!(reader.len(), 6000);
    let beyond = reader.read_at(5000, &mut [0; 2000]);
    assert!(matches!(beyond, Err(Error::Truncated { got: 1000, .. })));
}
