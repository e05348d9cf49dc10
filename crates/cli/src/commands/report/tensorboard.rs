//! Scalars of every step, as an event file that TensorBoard reads.
//!
//! ```text
//! record:  len: u64 | masked CRC of len: u32 | event | masked CRC of event: u32
//! event:   1: wall time (f64)   2: step   3: file version   5: summary { 1: value { 1: tag   2: number (f32) } }
//! ```

use super::Saved;
use super::summary::Step;

/// The name and the bytes of an event file. The same run gives the same name, so that a later report takes its place.
pub(super) fn events(saved: &[Saved]) -> (String, Vec<u8>) {
    let steps = saved.iter().map(|saved| &saved.numbers);
    let begin = steps
        .clone()
        .map(|step| step.started_unix_seconds)
        .min()
        .unwrap_or(0);
    let version = field_bytes(3, b"brain.Event:2");
    let mut file = record(&[wall_time(begin), version].concat());
    for step in steps {
        for (tag, value) in scalars(step) {
            file.extend(record(&scalar(step, tag, value)));
        }
    }
    (format!("events.out.tfevents.{begin:010}.cairn"), file)
}

fn scalars(step: &Step) -> Vec<(&'static str, f64)> {
    let all = [
        ("cairn/stall_ms", step.stall_seconds.map(|s| s * 1e3)),
        ("cairn/durable_s", step.durable_seconds),
        ("cairn/committed_s", step.committed_seconds),
        (
            "cairn/write_gbps",
            step.write_bytes_per_second.map(|b| b / 1e9),
        ),
    ];
    let known = all
        .into_iter()
        .filter_map(|(tag, value)| Some((tag, value?)));
    known.collect()
}

fn scalar(step: &Step, tag: &str, value: f64) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "TensorBoard keeps f32")]
    let number = field(2, 5, &(value as f32).to_le_bytes());
    let value = [field_bytes(1, tag.as_bytes()), number].concat();
    let summary = field_bytes(5, &field_bytes(1, &value));
    let number = field(2, 0, &varint(step.step));
    [wall_time(step.started_unix_seconds), number, summary].concat()
}

fn wall_time(seconds: u64) -> Vec<u8> {
    field(1, 1, &(seconds as f64).to_le_bytes())
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
