//! A zip written from front to back, with gaps for data that is written by somebody else.

use crc_fast::{CrcAlgorithm, checksum};

/// Where data begins inside an archive: on multiples of this.
const ALIGNMENT: u64 = 64;
/// Lengths and offsets from here on need the wide fields of a zip.
const WIDE: u64 = u32::MAX as u64;
/// As many entries need the wide fields, too.
const MANY: usize = u16::MAX as usize;
/// The flag of an entry with a descriptor behind its data.
const DESCRIBED: u16 = 1 << 3;
/// Where the checksum lies in a descriptor.
const DESCRIPTOR_CRC: usize = 4;
/// Where the checksum lies in an entry of the directory.
const DIRECTORY_CRC: usize = 16;

/// A zip being written.
pub(super) struct Zip {
    bytes: Vec<u8>,
    /// How much of the file lies before `bytes`.
    before: u64,
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    header: u64,
    len: u64,
    /// `None` if it comes in a descriptor behind the data.
    crc: Option<u32>,
}

impl Zip {
    /// An archive with the entries that every one of torch has.
    pub(super) fn new(pickle: &[u8]) -> Self {
        let mut zip = Self {
            bytes: Vec::new(),
            before: 0,
            entries: Vec::new(),
        };
        zip.add("data.pkl", pickle);
        zip.add("byteorder", b"little");
        zip.add("version", b"3\n");
        zip
    }

    fn add(&mut self, name: &str, data: &[u8]) {
        let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, data);
        let crc = u32::try_from(crc).expect("a CRC of 32 bits");
        self.open(name, data.len() as u64, Some(crc));
        self.bytes.extend(data);
    }

    /// How many entries there are.
    pub(super) fn entry_count(&self) -> usize {
        self.entries.len()
    }

    fn position(&self) -> u64 {
        self.before + self.bytes.len() as u64
    }

    /// What was written since the last time; it lies in the file before what comes.
    pub(super) fn drain(&mut self) -> Vec<u8> {
        self.before = self.position();
        std::mem::take(&mut self.bytes)
    }

    /// Writes the header of an entry, padded so that its data is aligned.
    pub(super) fn open(&mut self, name: &str, len: u64, crc: Option<u32>) {
        let name = format!("archive/{name}");
        let header = self.position();
        let mut extra = wide_field(&[len, len]);
        let start = header + 30 + name.len() as u64 + extra.len() as u64 + 4;
        let padding = start.next_multiple_of(ALIGNMENT) - start;
        extra.extend(b"FB");
        extra.extend(two(padding));
        extra.resize(extra.len() + usize::try_from(padding).unwrap_or(0), b'Z');
        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(common(len, crc, &name, extra.len()));
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(extra);
        self.entries.push(Entry {
            name,
            header,
            len,
            crc,
        });
    }

    /// Passes over `len` bytes of data and writes what follows them: checksum and lengths. Tells where the checksum lies in
    /// what is drained next.
    pub(super) fn describe(&mut self, len: u64) -> usize {
        self.before += len;
        let at = self.bytes.len() + DESCRIPTOR_CRC;
        self.bytes.extend(b"PK\x07\x08\0\0\0\0");
        for len in [len, len] {
            match len >= WIDE {
                true => self.bytes.extend(len.to_le_bytes()),
                false => self.bytes.extend(four(len)),
            }
        }
        at
    }

    /// Writes the end of the archive, and tells where in what is drained next the checksum of every entry lies.
    pub(super) fn close(&mut self) -> Vec<usize> {
        let start = self.position();
        let mut checksums = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            checksums.push(self.bytes.len() + DIRECTORY_CRC);
            let extra = wide_field(&[entry.len, entry.len, entry.header]);
            self.bytes.extend(b"PK\x01\x02\0\0");
            self.bytes
                .extend(common(entry.len, entry.crc, &entry.name, extra.len()));
            // Comment, disk, attributes.
            self.bytes.extend([0; 10]);
            self.bytes.extend(four(entry.header));
            self.bytes.extend(entry.name.as_bytes());
            self.bytes.extend(extra);
        }
        let len = self.position() - start;
        let count = self.entries.len();
        if start >= WIDE || len >= WIDE || count >= MANY {
            self.bytes.extend(wide_end(count as u64, start, len));
        }
        self.bytes.extend(b"PK\x05\x06\0\0\0\0");
        let count = u64::try_from(count.min(MANY)).unwrap_or(0);
        self.bytes.extend(two(count));
        self.bytes.extend(two(count));
        self.bytes.extend(four(len));
        self.bytes.extend(four(start));
        self.bytes.extend([0; 2]);
        checksums
    }
}

/// Version, flags, method, time, checksum, lengths.
fn common(len: u64, crc: Option<u32>, name: &str, extra_len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(two(if len >= WIDE { 45 } else { 20 }));
    let flags = if crc.is_none() { DESCRIBED } else { 0 };
    bytes.extend(flags.to_le_bytes());
    bytes.extend([0; 6]);
    bytes.extend(crc.unwrap_or(0).to_le_bytes());
    bytes.extend(four(len));
    bytes.extend(four(len));
    bytes.extend(two(name.len() as u64));
    bytes.extend(two(extra_len as u64));
    bytes
}

/// The extra field with those of the values that have no room elsewhere.
fn wide_field(values: &[u64]) -> Vec<u8> {
    let wide = values.iter().filter(|value| **value >= WIDE);
    let wide: Vec<u8> = wide.flat_map(|value| value.to_le_bytes()).collect();
    if wide.is_empty() {
        return wide;
    }
    let mut field = two(1).to_vec();
    field.extend(two(wide.len() as u64));
    field.extend(wide);
    field
}

/// The wide end record, and the record that says where it is.
fn wide_end(count: u64, start: u64, len: u64) -> Vec<u8> {
    let mut end = b"PK\x06\x06".to_vec();
    end.extend(44_u64.to_le_bytes());
    end.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for field in [count, count, len, start] {
        end.extend(field.to_le_bytes());
    }
    end.extend(b"PK\x06\x07\0\0\0\0");
    end.extend((start + len).to_le_bytes());
    end.extend(1_u32.to_le_bytes());
    end
}

fn two(value: u64) -> [u8; 2] {
    u16::try_from(value)
        .expect("names and fields of entries are short")
        .to_le_bytes()
}

/// Four bytes, all ones if the value has its place elsewhere.
fn four(value: u64) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes()
}
