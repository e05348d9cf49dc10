//! Event files that TensorBoard reads.
//!
//! ```text
//! record:  len: u64 | masked CRC of len: u32 | event | masked CRC of event: u32
//! event:   1: wall time (f64)   2: step   3: file version   5: summary { 1: value { 1: tag   2: number (f32) } }   7: session { 1: status }
//! ```

/// The record that every file begins with.
pub(crate) fn header(unix_seconds: f64) -> Vec<u8> {
    let version = field_bytes(3, b"brain.Event:2");
    record(&[wall_time(unix_seconds), version].concat())
}

/// The record of a start: what other files of the folder say of this step and later ones no longer holds.
pub(crate) fn start(unix_seconds: f64, step: u64) -> Vec<u8> {
    let started = field_bytes(7, &field(1, 0, &[1]));
    record(&[wall_time(unix_seconds), number(step), started].concat())
}

/// The record of a number with a name.
pub(crate) fn scalar(unix_seconds: f64, step: u64, tag: &str, value: f64) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "TensorBoard keeps f32")]
    let value = field(2, 5, &(value as f32).to_le_bytes());
    let value = [field_bytes(1, tag.as_bytes()), value].concat();
    let summary = field_bytes(5, &field_bytes(1, &value));
    record(&[wall_time(unix_seconds), number(step), summary].concat())
}

fn wall_time(unix_seconds: f64) -> Vec<u8> {
    field(1, 1, &unix_seconds.to_le_bytes())
}

fn number(step: u64) -> Vec<u8> {
    field(2, 0, &varint(step))
}

/// A field's number, the kind of what follows (0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes), and that.
fn field(number: u8, kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | kind], bytes].concat()
}

fn field_bytes(number: u8, bytes: &[u8]) -> Vec<u8> {
    let len = varint(bytes.len() as u64);
    field(number, 2, &[&len, bytes].concat())
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

fn record(event: &[u8]) -> Vec<u8> {
    let len = (event.len() as u64).to_le_bytes();
    let (len_crc, crc) = (masked_crc(&len), masked_crc(event));
    [&len[..], &len_crc, event, &crc].concat()
}

fn masked_crc(bytes: &[u8]) -> [u8; 4] {
    let crc = crc32c(bytes).rotate_right(15);
    crc.wrapping_add(0xa282_ead8).to_le_bytes()
}

/// CRC-32C, bit by bit: an event has a hundred bytes.
fn crc32c(bytes: &[u8]) -> u32 {
    let shift = |crc: u32| crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc));
    !bytes.iter().fold(!0, byte)
}

#[cfg(test)]
mod tests {
    //! The pieces of the encoding, by known values.

    use super::*;

    #[test]
    fn the_checksum_is_the_known_one() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn numbers_take_as_many_bytes_as_they_need() {
        assert_eq!(varint(0), [0]);
        assert_eq!(varint(300), [0xac, 2]);
        assert_eq!(varint(u64::MAX).len(), 10);
    }
}
