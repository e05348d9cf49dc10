//! Bytes compressed with Zstandard.

use std::io::Read;

/// What is compressed in `bytes`, if that is no more than `max_len`; otherwise why not.
///
/// Memory grows with what comes out, so that a lie about the length costs nothing.
pub(crate) fn decode(mut bytes: &[u8], max_len: u64) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::new();
    while !bytes.is_empty() {
        let frame = ruzstd::decoding::StreamingDecoder::new(&mut bytes);
        let mut frame = frame.map_err(|error| error.to_string())?;
        let room = max_len - decoded.len() as u64;
        let read = frame
            .by_ref()
            .take(room.saturating_add(1))
            .read_to_end(&mut decoded);
        read.map_err(|error| error.to_string())?;
        if decoded.len() as u64 > max_len {
            return Err(format!("more than {max_len} bytes come out"));
        }
    }
    Ok(decoded)
}
