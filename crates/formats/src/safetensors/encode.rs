//! Entries → the bytes at the start of a file.

use super::{Entry, MAX_HEADER_BYTES, METADATA_KEY};
use serde_json::{Map, Value, json};

/// Writes the length and JSON header for `entries`, padded with spaces so that the data starts on a multiple of `alignment`.
///
/// `metadata` becomes the format's string map. Returns `None` if the header would be over the format's limit.
pub fn encode(entries: &[Entry], metadata: &[(&str, &str)], alignment: usize) -> Option<Vec<u8>> {
    let mut object = Map::with_capacity(entries.len() + 1);
    if !metadata.is_empty() {
        let strings: Map<String, Value> = metadata
            .iter()
            .map(|(key, value)| ((*key).to_string(), json!(value)))
            .collect();
        object.insert(METADATA_KEY.into(), Value::Object(strings));
    }
    for entry in entries {
        object.insert(
            entry.name.clone(),
            json!({
                "dtype": entry.dtype.safetensors_name(),
                "shape": entry.shape,
                "data_offsets": [entry.begin, entry.end],
            }),
        );
    }
    let json = Value::Object(object).to_string();
    let data_start = (8 + json.len()).next_multiple_of(alignment.max(1));
    let header_len = (data_start - 8) as u64;
    if header_len > MAX_HEADER_BYTES {
        return None;
    }
    let mut bytes = Vec::with_capacity(data_start);
    bytes.extend_from_slice(&header_len.to_le_bytes());
    bytes.extend_from_slice(json.as_bytes());
    bytes.resize(data_start, b' ');
    Some(bytes)
}
