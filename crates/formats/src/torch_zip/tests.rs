//! Archives as torch writes them, archives too large for narrow fields, and archives that lie.

use super::*;
use crate::pickle::Writer;
use cairn_store::{Memory, PutMode};
use cairn_tensor::DType;
use crc_fast::CrcAlgorithm;
use proptest::prelude::*;
use serde_json::json;

/// A tensor's archive with its data left out: nothing but zeros between the frames.
struct Hollow {
    frame: Frame,
}

impl ObjectReader for Hollow {
    fn len(&self) -> u64 {
        self.frame.before.len() as u64 + self.frame.len_bytes + self.frame.after.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), cairn_store::Error> {
        let before = self.frame.before.len() as u64;
        for (byte, at) in buffer.iter_mut().zip(offset..) {
            *byte = match at.checked_sub(before + self.frame.len_bytes) {
                Some(after) => self.frame.after[usize::try_from(after).unwrap()],
                None if at < before => self.frame.before[usize::try_from(at).unwrap()],
                None => 0,
            };
        }
        Ok(())
    }
}

fn archive(dtype: DType, shape: &[usize]) -> Vec<u8> {
    let mut frame = tensor_frame(dtype, shape).unwrap();
    let data: Vec<u8> = (0..frame.len_bytes)
        .map(|byte| u8::try_from(byte % 251).unwrap())
        .collect();
    let crc = u32::try_from(crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, &data)).unwrap();
    for at in frame.crc_at {
        assert_eq!(frame.after[at..at + 4], [0; 4]);
        frame.after[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    [frame.before, data, frame.after].concat()
}

/// For every entry of a zip: its name, the checksum in the directory, and its data.
fn entries(zip: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let number = |at: usize, len: usize| {
        let bytes = zip[at..at + len].iter().rev();
        bytes.fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let end = zip.len() - 22;
    let mut at = number(end + 16, 4);
    let mut found = Vec::new();
    while zip[at..].starts_with(b"PK\x01\x02") {
        let (name, extra, local) = (number(at + 28, 2), number(at + 30, 2), number(at + 42, 4));
        let data = local + 30 + number(local + 26, 2) + number(local + 28, 2);
        let data = zip[data..data + number(at + 24, 4)].to_vec();
        let crc = u32::try_from(number(at + 16, 4)).unwrap();
        let text = String::from_utf8_lossy(&zip[at + 46..at + 46 + name]);
        found.push((text.into_owned(), crc, data));
        at += 46 + name + extra;
    }
    assert_eq!(at, end);
    found
}

#[test]
fn every_entry_of_a_written_archive_has_its_checksum() {
    let archives = [
        archive(DType::F32, &[3, 2]),
        archive(DType::U8, &[0]),
        value_archive(&json!({"a": 1})).unwrap(),
    ];
    for bytes in archives {
        for (name, crc, data) in entries(&bytes) {
            let actual = crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, &data);
            assert_eq!(u64::from(crc), actual, "{name}");
        }
    }
}

#[test]
fn a_written_tensor_is_found_where_it_lies_for_every_type() {
    for (dtype, shape) in DType::ALL
        .into_iter()
        .zip([vec![], vec![3, 2], vec![0, 5]].iter().cycle())
    {
        let Some(frame) = tensor_frame(dtype, shape) else {
            assert!(dtype.bits() < 8, "{dtype}");
            continue;
        };
        let start = frame.before.len() as u64;
        assert!(start.is_multiple_of(64));
        let hollow = Hollow { frame };
        let found = locate("x", &hollow, 0..hollow.len()).unwrap();
        assert_eq!(
            (found.dtype, &found.shape, found.offset),
            (dtype, shape, start)
        );
        assert_eq!(found.strides, None);
    }
}

#[test]
fn an_archive_beyond_four_gibibytes_is_found_through_wide_fields() {
    for elements in [u32::MAX as usize, 5 << 30] {
        let frame = tensor_frame(DType::U8, &[elements]).unwrap();
        let start = frame.before.len() as u64;
        let hollow = Hollow { frame };
        let found = locate("x", &hollow, 0..hollow.len()).unwrap();
        assert_eq!((found.offset, found.shape), (start, vec![elements]));
    }
}

#[test]
fn a_value_comes_back_and_an_unknown_class_is_noted() {
    let value = json!({"a": [1, {"$tuple": []}]});
    assert_eq!(
        read_value("v", &value_archive(&value).unwrap()).unwrap(),
        value
    );
    assert_eq!(value_archive(&json!({"$opaque": "a.B"})), None);
}

#[test]
fn a_tensor_that_reaches_beyond_its_storage_is_damage() {
    let bytes = archive(DType::U8, &[7]);
    let at = bytes
        .windows(5)
        .position(|part| part == b"J\x07\0\0\0")
        .unwrap();
    // The first seven is the length of the storage, the second that of the tensor.
    let second = at
        + 5
        + bytes[at + 5..]
            .windows(5)
            .position(|part| part == b"J\x07\0\0\0")
            .unwrap();
    let mut longer = bytes.clone();
    longer[second + 1] = 8;
    let error = locate("x", &Bytes(&longer), 0..longer.len() as u64).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(locate("x", &Bytes(&bytes), 0..bytes.len() as u64).is_ok());
}

#[test]
fn a_branch_without_tensors_is_one_value() {
    let store = Memory::new();
    let value = json!({"a.b": 1, "a": {"b": 2}});
    store
        .put("x.pt", &value_archive(&value).unwrap(), PutMode::Create)
        .unwrap();
    assert_eq!(
        open_file(&store, "x.pt").unwrap().values["a"],
        json!({"b": 2})
    );
}

#[test]
fn other_zips_and_old_files_are_refused_with_advice() {
    let store = Memory::new();
    let mut old = OLD_MAGIC.to_vec();
    old.extend(b"\x80\x02M\xe9\x03.");
    for (key, bytes) in [
        ("old.pt", old.as_slice()),
        ("text.pt", b"hello"),
        ("none.pt", b""),
    ] {
        store.put(key, bytes, PutMode::Create).unwrap();
        let error = open_file(&store, key).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn a_name_outside_the_list_stops_a_file() {
    let mut pickle = Writer::new();
    pickle.global("os.system");
    pickle.mark();
    pickle.str("true");
    pickle.tuple();
    pickle.call();
    let bytes = encode::pickle_archive(pickle.finish());
    let store = Memory::new();
    store.put("x.pt", &bytes, PutMode::Create).unwrap();
    let error = open_file(&store, "x.pt").unwrap_err();
    assert!(matches!(error, Error::Global { global, .. } if global == "os.system"));
    assert_eq!(
        read_value("x", &bytes).unwrap(),
        json!({"$opaque": "os.system"})
    );
}

proptest! {
    #[test]
    fn damaged_archives_are_read_or_refused(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = archive(DType::F32, &[3, 2]);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = locate("x", &Bytes(&bytes), 0..bytes.len() as u64);
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(locate("x", &Bytes(&bytes), 0..bytes.len() as u64).is_err());
    }
}
