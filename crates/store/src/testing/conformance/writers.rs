//! Large objects: written in parallel, finished or abandoned, read at any offset.

use super::{Check, SIZES, keys, pattern};
use crate::{ALIGNMENT, AlignedBuffer, Error, PutMode, Store};

pub(super) const CHECKS: [Check; 9] = [
    every_size_survives_from_aligned_and_unaligned_memory,
    threads_write_in_any_order,
    ranges_of_any_alignment_read_back,
    reading_beyond_the_end_is_an_error,
    writes_that_break_the_rules_are_refused,
    an_incomplete_object_cannot_be_finished,
    an_object_may_end_early,
    an_unfinished_object_is_invisible_and_leaves_nothing,
    an_absurd_length_is_refused_or_harmless,
];

fn every_size_survives_from_aligned_and_unaligned_memory(store: &dyn Store) {
    for (seed, len) in (0..).zip(SIZES) {
        let bytes = pattern(seed, len);
        for shift in [0, 1, 512] {
            let mut memory = AlignedBuffer::new(len + shift);
            memory[shift..].copy_from_slice(&bytes);
            let key = format!("{len}/{shift}");
            let writer = store.create(&key, len as u64).expect("create");
            writer.write_at(0, &memory[shift..]).expect("write");
            writer.finish().expect("finish");
            assert!(store.get(&key).expect("get") == bytes, "{key}");
            let meta = store.head(&key).expect("head").expect("it exists");
            assert_eq!(meta.len, len as u64, "padding must not stay");
        }
    }
}

fn threads_write_in_any_order(store: &dyn Store) {
    let bytes = pattern(7, 40 * ALIGNMENT + 123);
    let writer = store.create("a", bytes.len() as u64).expect("create");
    let pieces: Vec<(usize, &[u8])> = bytes.chunks(3 * ALIGNMENT).enumerate().collect();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (writer, pieces) = (&writer, &pieces);
            scope.spawn(move || {
                // Each from the end, so that the tail comes first.
                for (index, piece) in pieces.iter().rev().filter(|(index, _)| index % 4 == worker) {
                    let offset = (index * 3 * ALIGNMENT) as u64;
                    writer.write_at(offset, piece).expect("write");
                }
            });
        }
    });
    writer.finish().expect("finish");
    assert!(store.get("a").expect("get") == bytes);
}

fn ranges_of_any_alignment_read_back(store: &dyn Store) {
    let len = 5 * ALIGNMENT + 77;
    let bytes = pattern(3, len);
    let writer = store.create("a", len as u64).expect("create");
    writer.write_at(0, &bytes).expect("write");
    writer.finish().expect("finish");
    let reader = store.reader("a").expect("reader");
    assert_eq!(reader.len(), len as u64);
    let marks = [
        0,
        1,
        77,
        ALIGNMENT,
        ALIGNMENT + 1,
        4 * ALIGNMENT,
        5 * ALIGNMENT,
        len,
    ];
    for start in marks {
        for end in marks.into_iter().filter(|end| *end >= start) {
            for shift in [0, 1] {
                let mut memory = AlignedBuffer::new(end - start + shift);
                let result = reader.read_at(start as u64, &mut memory[shift..]);
                result.expect("inside the object");
                assert!(memory[shift..] == bytes[start..end], "{start}..{end}");
            }
        }
    }
}

fn reading_beyond_the_end_is_an_error(store: &dyn Store) {
    let len = 2 * ALIGNMENT + 1;
    store
        .put("a", &pattern(1, len), PutMode::Create)
        .expect("put");
    let reader = store.reader("a").expect("reader");
    let check = |offset: u64, wanted: usize, got: usize| {
        let result = reader.read_at(offset, &mut AlignedBuffer::new(wanted));
        let Err(Error::Truncated {
            key,
            offset: at,
            wanted: asked,
            got: there,
        }) = result
        else {
            panic!("{wanted} bytes at {offset}: {result:?}");
        };
        assert_eq!((key.as_str(), at), ("a", offset));
        assert_eq!((asked, there), (wanted as u64, got as u64));
    };
    check(0, len + 1, len);
    check(0, 3 * ALIGNMENT, len);
    check(2 * ALIGNMENT as u64, ALIGNMENT, 1);
    check(len as u64, 1, 0);
    check(4 * ALIGNMENT as u64, ALIGNMENT, 0);
    check(u64::MAX, 1, 0);
    reader
        .read_at(len as u64, &mut [])
        .expect("nothing at the end");
}

fn writes_that_break_the_rules_are_refused(store: &dyn Store) {
    let len = 3 * ALIGNMENT + 5;
    let bytes = pattern(1, len);
    let writer = store.create("a", len as u64).expect("create");
    let block = ALIGNMENT as u64;
    let refused = |offset: u64, piece: &[u8]| {
        let result = writer.write_at(offset, piece);
        assert!(
            matches!(result, Err(Error::InvalidRange { .. })),
            "{offset}"
        );
    };
    refused(1, &bytes[..ALIGNMENT]);
    refused(0, &bytes[..5]);
    refused(3 * block, &bytes[..6]);
    refused(u64::MAX - block + 1, &bytes[..ALIGNMENT]);
    writer
        .write_at(block, &bytes[ALIGNMENT..2 * ALIGNMENT])
        .expect("write");
    refused(0, &bytes);
    refused(block, &bytes[..ALIGNMENT]);
    writer.write_at(0, &[]).expect("nothing to write");
    writer
        .write_at(2 * block, &bytes[2 * ALIGNMENT..])
        .expect("write");
    writer.write_at(0, &bytes[..ALIGNMENT]).expect("write");
    writer.finish().expect("the refused writes did no harm");
    assert!(store.get("a").expect("get") == bytes);
}

fn an_incomplete_object_cannot_be_finished(store: &dyn Store) {
    let bytes = pattern(1, 2 * ALIGNMENT);
    for written in [0, ALIGNMENT] {
        let writer = store.create("a/b", 2 * ALIGNMENT as u64).expect("create");
        writer.write_at(0, &bytes[..written]).expect("write");
        let Err(Error::Incomplete { written: told, .. }) = writer.finish() else {
            panic!("{written} of {} bytes are enough", bytes.len());
        };
        assert_eq!(told, written as u64);
        assert_eq!(store.head("a/b").expect("head"), None);
    }
    assert!(keys(store, "").is_empty());
}

fn an_object_may_end_early(store: &dyn Store) {
    let bytes = pattern(5, 6 * ALIGNMENT);
    let block = ALIGNMENT as u64;
    let begun = |key: &str| {
        let writer = store.create_up_to(key, 6 * block).expect("create");
        writer
            .write_at(block, &bytes[ALIGNMENT..3 * ALIGNMENT])
            .expect("write");
        writer
    };
    let writer = begun("a");
    writer.write_at(0, &bytes[..ALIGNMENT]).expect("write");
    writer.finish_at(3 * block).expect("finish");
    assert!(store.get("a").expect("get") == bytes[..3 * ALIGNMENT]);
    for wrong in [block, 2 * block, 3 * block, 4 * block, 7 * block] {
        begun("b")
            .finish_at(wrong)
            .expect_err("a hole, or bytes behind the end");
        assert_eq!(store.head("b").expect("head"), None);
    }
    let whole = store.create_up_to("c", 6 * block).expect("create");
    whole.write_at(0, &bytes).expect("write");
    whole.finish().expect("finish");
    assert!(store.get("c").expect("get") == bytes);
}

fn an_unfinished_object_is_invisible_and_leaves_nothing(store: &dyn Store) {
    let bytes = pattern(1, ALIGNMENT + 9);
    let winner = store.create("a/b", bytes.len() as u64).expect("create");
    let loser = store.create("a/b", 4).expect("the key is still free");
    let dropped = store.create("a/c", bytes.len() as u64).expect("create");
    for writer in [&winner, &dropped] {
        writer.write_at(0, &bytes).expect("write");
    }
    loser.write_at(0, b"late").expect("write");
    for key in ["a/b", "a/c"] {
        assert_eq!(store.head(key).expect("head"), None);
        assert!(matches!(store.reader(key), Err(Error::NotFound { .. })));
    }
    assert!(keys(store, "").is_empty());
    drop(dropped);
    winner.finish().expect("finish");
    assert!(matches!(loser.finish(), Err(Error::AlreadyExists { .. })));
    assert_eq!(keys(store, ""), ["a/b"]);
    assert!(store.get("a/b").expect("get") == bytes);
    store
        .put("a/c", b"free", PutMode::Create)
        .expect("the key is free");
}

fn an_absurd_length_is_refused_or_harmless(store: &dyn Store) {
    for len in [1 << 60, u64::MAX] {
        match store.create("a", len) {
            Ok(writer) => drop(writer),
            Err(Error::NoSpace {
                needed, available, ..
            }) => {
                assert_eq!(needed, len);
                assert!(available < len);
            }
            // A store of unknown size finds another reason.
            Err(Error::Io { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(keys(store, "").is_empty());
}
