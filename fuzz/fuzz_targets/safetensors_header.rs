//! The JSON header of a safetensors file: what is accepted covers the file exactly, and encodes to the same entries.

#![no_main]

use cairn_formats::safetensors::{encode, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, &[u8])| {
    let (data_len, json) = input;
    let file_len = 8 + json.len() as u64 + u64::from(data_len);
    let Ok(header) = parse("fuzz", json, file_len) else {
        return;
    };
    assert_eq!(header.file_len(), file_len);

    let metadata: Vec<(&str, &str)> = header
        .metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let encoded =
        encode(&header.entries, &metadata, 4096).expect("a small header is under the limit");
    let encoded_len = encoded.len() as u64 + u64::from(data_len);
    let again = parse("fuzz", &encoded[8..], encoded_len).expect("what we write, we read");
    assert_eq!(again.entries, header.entries);
    assert_eq!(again.metadata, header.metadata);
});
