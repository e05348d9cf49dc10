//! Pickles as Python writes them, and pickles nobody should trust.

use super::*;
use crate::Error;
use proptest::prelude::*;

fn plain(bytes: &[u8]) -> Result<Pickle, Error> {
    parse("x.pkl", bytes, &Policy::new())
}

fn allowing_collections() -> Policy {
    Policy::new()
        .mention(&["collections.*"])
        .call(&["collections.OrderedDict"])
}

#[test]
fn plain_data_of_protocol_4_is_read() {
    // {"a": [1, -2, 2**70], "b": (None, True, 1.5), "c": b"xy"}
    let bytes = b"\x80\x04\x958\0\0\0\0\0\0\0}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xff\x8a\t\0\0\0\0\0\0\0\0@e\x8c\x01b\x94N\x88G?\xf8\0\0\0\0\0\0\x87\x94\x8c\x01c\x94C\x02xy\x94u.";
    let pickle = plain(bytes).unwrap();
    let items = pickle.root().get("a").unwrap().items().unwrap();
    assert_eq!(items[1].as_int(), Some(-2));
    assert_eq!(
        *items[2].value(),
        Value::BigInt(Box::from([0, 0, 0, 0, 0, 0, 0, 0, 64]))
    );
    let tuple = pickle.root().get("b").unwrap().items().unwrap();
    assert!(tuple[0].is_none() && tuple[1].as_bool() == Some(true));
    assert_eq!(*tuple[2].value(), Value::Float(1.5));
    assert_eq!(
        *pickle.root().get("c").unwrap().value(),
        Value::Bytes(Box::from(*b"xy"))
    );
}

#[test]
fn a_long_byte_string_stays_in_the_file() {
    let mut bytes = b"\x80\x04B\0\0\x01\0".to_vec();
    bytes.extend(vec![7; 0x10000]);
    bytes.push(b'.');
    let pickle = plain(&bytes).unwrap();
    assert_eq!(*pickle.root().value(), Value::FileBytes(7..7 + 0x10000));
}

#[test]
fn a_name_that_is_not_allowed_is_refused_wherever_it_stands() {
    let cases: [(&[u8], &str); 7] = [
        (b"\x80\x02cos\nsystem\n(X\x02\0\0\0lstR.", "os.system"),
        (b"\x80\x02cposix\nsystem\nq\0.", "posix.system"),
        (
            b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
            "builtins.eval",
        ),
        (b"\x80\x02(ios\nsystem\n.", "os.system"),
        (b"\x80\x02}(K\x01cnt\nsystem\nu.", "nt.system"),
        (
            b"\x80\x02ccollections\nOrderedDict\n)Rcos\nsystem\nb.",
            "os.system",
        ),
        (
            b"\x80\x02ccollections\nOrderedDict\n)}\x92.",
            "collections.OrderedDict",
        ),
    ];
    for (bytes, name) in cases {
        match parse("x.pkl", bytes, &allowing_collections()).unwrap_err() {
            Error::Global { global, file, .. } => {
                assert_eq!((global.as_str(), file.as_str()), (name, "x.pkl"))
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_mention_is_no_leave_to_call() {
    let bytes = b"\x80\x02ccollections\ndeque\n)R.";
    let error = parse("x.pkl", bytes, &allowing_collections())
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "`x.pkl` calls `collections.deque` at byte 22 of its pickle, which is not allowed"
    );
}

#[test]
fn opcodes_that_reach_outside_are_refused() {
    for (bytes, name) in [
        (b"\x80\x02(o.".as_slice(), "OBJ"),
        (b"\x80\x02\x82\x01.", "EXT"),
        (b"\x80\x02\x84\x01\0\0\0.", "EXT"),
        (b"\x80\x02P1\n.", "PERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"I1\n.", "protocol 0"),
        (b"\x80\x06.", "protocol 6"),
    ] {
        let error = plain(bytes).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn shared_values_are_kept_once() {
    // Each list holds the one before it ten times: 10^30 elements if written out.
    let mut bytes = b"\x80\x02]q\0".to_vec();
    for _ in 0..30 {
        bytes.extend(b"(h\0h\0h\0h\0h\0h\0h\0h\0h\0h\0lq\0");
    }
    bytes.push(b'.');
    assert_eq!(plain(&bytes).unwrap().values.len(), 31);
}

#[test]
fn a_list_that_contains_itself_is_a_value_like_any_other() {
    let pickle = plain(b"\x80\x02]q\0h\0a.").unwrap();
    let root = pickle.root();
    assert_eq!(root.items().unwrap()[0].id(), root.id());
}

#[test]
fn lengths_beyond_the_end_are_refused_before_memory_is_taken() {
    for bytes in [
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff.".as_slice(),
        b"\x80\x04\x8d\xff\xff\xff\x3f\0\0\0\0.",
        b"\x80\x04X\xff\xff\xff\xff.",
        b"\x80\x04\x8b\xff\xff\xff\xff.",
        b"\x80\x04\x8cz",
        b"",
        b"(((",
    ] {
        assert!(matches!(plain(bytes), Err(Error::Pickle { .. })));
    }
    let deep = vec![b'('; MAX_DEPTH + 1];
    assert!(
        plain(&deep)
            .unwrap_err()
            .to_string()
            .contains("nested deeper")
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse("x", &bytes, &allowing_collections());
    }

    #[test]
    fn a_flipped_byte_never_lets_an_unlisted_name_through(at in 0usize..60, to in any::<u8>()) {
        let mut bytes = b"\x80\x04\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R}(K\x01]q\x05h\x05K\x02\x86ub.".to_vec();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(pickle) = parse("x", &bytes, &allowing_collections()) {
            for value in &pickle.values {
                if let Value::Global(name) = value {
                    prop_assert!(name.starts_with("collections."));
                }
            }
        }
    }
}
