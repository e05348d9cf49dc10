//! Bytes compressed with Zstandard.

use std::io::Read;

/// The most that is reserved before anything came out.
const MAX_RESERVED_BYTES: u64 = 64 << 20;

/// What is compressed in `bytes`, if that is no more than `max_len`; otherwise why not.
///
/// Memory grows with what comes out, so that a lie about the length costs nothing.
pub(crate) fn decode(bytes: &[u8], max_len: u64) -> Result<Vec<u8>, String> {
    let reserved = usize::try_from(max_len.min(MAX_RESERVED_BYTES)).unwrap_or(0);
    let mut decoded = Vec::with_capacity(reserved);
    let decoder = ::zstd::Decoder::with_buffer(bytes).map_err(|error| error.to_string())?;
    let read = decoder
        .take(max_len.saturating_add(1))
        .read_to_end(&mut decoded);
    read.map_err(|error| error.to_string())?;
    match decoded.len() as u64 > max_len {
        true => Err(format!("more than {max_len} bytes come out")),
        false => Ok(decoded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_is_bounded() {
        let bomb = ::zstd::encode_all([0; 1 << 20].as_slice(), 1).unwrap();
        assert!(bomb.len() < 100);
        assert!(
            decode(&bomb, 1 << 10)
                .unwrap_err()
                .contains("more than 1024")
        );
        assert_eq!(decode(&bomb, u64::MAX).unwrap().len(), 1 << 20);
        let twice = [bomb.as_slice(), &bomb].concat();
        assert_eq!(
            decode(&twice, 2 << 20).unwrap().len(),
            2 << 20,
            "frames follow one another"
        );
    }

    #[test]
    fn what_is_cut_or_no_frame_is_an_error() {
        let whole = ::zstd::encode_all((0..=255).collect::<Vec<u8>>().as_slice(), 1).unwrap();
        for len in 1..whole.len() {
            assert!(decode(&whole[..len], 256).is_err(), "{len} bytes");
        }
        assert!(decode(b"no frame", 256).is_err());
        assert!(decode(&[whole.as_slice(), b"rest"].concat(), 256).is_err());
    }
}
