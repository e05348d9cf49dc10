//! The checksums that prove bytes are intact: CRC-32C per block of a data file, SHA-256 for small documents.

use sha2::{Digest, Sha256};

/// The bytes one CRC covers. Small enough that reading a slice of a tensor reads little more than the slice,
/// large enough that the table is 1/16,384 of the data.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// Makes every CRC 0, so that a benchmark can tell what they cost.
#[cfg(feature = "testing")]
pub(crate) static SKIPPED: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);

/// CRC-32C (Castagnoli) of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(feature = "testing")]
    if SKIPPED.load(std::sync::atomic::Ordering::Relaxed) {
        return 0;
    }
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a 32-bit CRC fits in 32 bits")
}

/// Lower-case hexadecimal SHA-256 of `bytes`.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

/// The first eight bytes of the SHA-256 of `bytes` as a number.
pub(crate) fn hash64(bytes: &[u8]) -> u64 {
    let digest = Sha256::digest(bytes);
    let (head, _) = digest
        .split_first_chunk::<8>()
        .expect("SHA-256 has 32 bytes");
    u64::from_le_bytes(*head)
}

/// Lower-case hexadecimal.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// The bytes that hexadecimal digits stand for; `None` if they are not `N`.
pub(crate) fn from_hex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    let digit = |index: usize| char::from(*digits.get(index)?).to_digit(16);
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::try_from(digit(2 * index)? * 16 + digit(2 * index + 1)?).ok()?;
    }
    (digits.len() == 2 * N).then_some(bytes)
}

/// A table of CRCs as text: eight hexadecimal digits each, in block order.
pub(crate) fn crcs_to_text(crcs: &[u32]) -> String {
    let bytes: Vec<u8> = crcs.iter().flat_map(|crc| crc.to_be_bytes()).collect();
    to_hex(&bytes)
}

/// The reverse of [`crcs_to_text`]; `None` if the text is not a table.
pub(crate) fn crcs_from_text(text: &str) -> Option<Vec<u32>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(8) {
        return None;
    }
    digits
        .chunks(8)
        .map(|chunk| {
            chunk.iter().try_fold(0_u32, |value, digit| {
                let nibble = char::from(*digit).to_digit(16);
                let nibble = nibble.filter(|_| !digit.is_ascii_uppercase());
                nibble.map(|nibble| (value << 4) | nibble)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    //! Known answers and round trips.

    use super::*;

    #[test]
    fn crc_is_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn a_table_reads_back_and_nonsense_does_not() {
        let crcs = [0, 1, u32::MAX, 0xe306_9283];
        assert_eq!(crcs_from_text(&crcs_to_text(&crcs)), Some(crcs.to_vec()));
        assert_eq!(crcs_from_text("0000000"), None);
        assert_eq!(crcs_from_text("0000000g"), None);
        assert_eq!(crcs_from_text("0000000A"), None);
        assert_eq!(crcs_from_text(""), Some(vec![]));
    }
}
