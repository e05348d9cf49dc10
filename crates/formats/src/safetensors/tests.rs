//! Headers round-trip, agree with the `safetensors` crate, and every broken rule is refused by name.

use super::*;
use cairn_store::{Memory, PutMode, Store};
use proptest::prelude::*;

fn entry(name: &str, dtype: DType, shape: &[usize], begin: u64) -> Entry {
    let count = cairn_tensor::element_count(shape).unwrap();
    let end = begin + dtype.len_bytes(count).unwrap() as u64;
    Entry {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        begin,
        end,
    }
}

fn reason(json: &str, data_len: u64) -> String {
    let file_len = 8 + json.len() as u64 + data_len;
    parse("x", json.as_bytes(), file_len)
        .unwrap_err()
        .to_string()
}

#[test]
fn a_header_reads_back_and_data_starts_aligned() {
    let entries = vec![
        entry("a", DType::F32, &[2, 3], 0),
        entry("scalar", DType::Bf16, &[], 24),
        entry("nothing", DType::I64, &[0, 7], 26),
        entry("größe 🪨", DType::U8, &[5], 26),
    ];
    let bytes = encode(&entries, &[("format", "pt")], 4096).unwrap();
    assert_eq!(bytes.len(), 4096);
    let store = Memory::new();
    let mut file = bytes.clone();
    file.resize(4096 + 31, 7);
    store.put("m.safetensors", &file, PutMode::Create).unwrap();
    let header = read(&store, "m.safetensors").unwrap();
    assert_eq!(header.entries, entries);
    assert_eq!(header.metadata["format"], "pt");
    assert_eq!(header.data_start, 4096);
    assert_eq!(header.file_len(), 4096 + 31);
}

#[test]
fn an_empty_file_of_tensors_is_valid() {
    let bytes = encode(&[], &[], 4096).unwrap();
    let header = parse("x", &bytes[8..], 4096).unwrap();
    assert!(header.entries.is_empty());
}

#[test]
fn each_broken_rule_is_named() {
    let one = |offsets: &str| {
        format!(r#"{{"a":{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}}}"#)
    };
    assert!(reason(&one("[0,4]"), 4).contains("needs 8"));
    assert!(reason(&one("[8,0]"), 4).contains("8..0"));
    assert!(reason(&one("[4,12]"), 12).contains("a hole before tensor `a`"));
    assert!(reason(&one("[0,8]"), 9).contains("describes"));
    assert!(reason("[]", 0).contains("does not start"));
    assert!(reason("{", 0).contains("not JSON"));
    let huge = r#"{"a":{"dtype":"F32","shape":[18446744073709551615,2],"data_offsets":[0,8]}}"#;
    assert!(reason(huge, 8).contains("no byte length"));
    let unknown = r#"{"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}}"#;
    assert!(reason(unknown, 8).contains("F33"));
    let twice = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    assert!(reason(twice, 2).contains("occurs twice"));
    let overlap = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#;
    assert!(reason(overlap, 3).contains("an overlap before tensor `b`"));
}

#[test]
fn a_header_length_beyond_the_file_or_the_limit_is_refused_before_allocating() {
    let store = Memory::new();
    for (key, len) in [("long", 1_u64 << 20), ("huge", u64::MAX)] {
        let mut file = len.to_le_bytes().to_vec();
        file.extend_from_slice(b"{}");
        store.put(key, &file, PutMode::Create).unwrap();
        assert!(matches!(
            read(&store, key),
            Err(crate::Error::Header { .. })
        ));
    }
    store.put("short", b"abc", PutMode::Create).unwrap();
    assert!(read(&store, "short").is_err());
}

proptest! {
    #[test]
    fn the_safetensors_crate_reads_what_we_write(sizes in prop::collection::vec((0_usize..5, 0_usize..4), 0..12)) {
        let mut begin = 0;
        let entries: Vec<Entry> = sizes.iter().enumerate().map(|(i, (rows, cols))| {
            let e = entry(&format!("t{i}"), DType::F16, &[*rows, *cols], begin);
            begin = e.end;
            e
        }).collect();
        let mut file = encode(&entries, &[], 64).unwrap();
        file.resize(file.len() + usize::try_from(begin).unwrap(), 0);
        let theirs = ::safetensors::SafeTensors::deserialize(&file).unwrap();
        prop_assert_eq!(theirs.len(), entries.len());
        for entry in &entries {
            let read = theirs.tensor(&entry.name).unwrap();
            prop_assert_eq!(read.shape(), &entry.shape[..]);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), len in any::<u64>()) {
        let _ = parse("x", &bytes, len);
    }
}
