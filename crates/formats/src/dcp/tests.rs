//! Folders as torch writes them, folders that lie, and folders with very many chunks.

use super::*;
use crate::model::Encoding;
use crate::safetensors;
use crate::torch_zip::{tensor_frame, value_archive};
use cairn_store::{Memory, PutMode};
use cairn_tensor::DType;
use proptest::prelude::*;
use serde_json::json;

const FILE: &str = "__0_0.distcp";

/// A folder with `count` tensors of two elements and the value `step`.
fn folder(count: usize) -> (Memory, Vec<StoredItem>) {
    let frame = tensor_frame(DType::F32, &[2]).unwrap();
    let value = value_archive(&json!(7)).unwrap();
    let mut bytes = value.clone();
    let item = |name: String, offset: usize, tensor| StoredItem {
        name,
        tensor,
        file: FILE.into(),
        offset: offset as u64,
        len_bytes: 0,
    };
    let mut items = vec![item("step".into(), 0, None)];
    items[0].len_bytes = value.len() as u64;
    for index in 0..count {
        let mut item = item(
            format!("w{index}"),
            bytes.len(),
            Some((DType::F32, vec![2])),
        );
        bytes.extend(&frame.before);
        bytes.extend([0; 8]);
        bytes.extend(&frame.after);
        item.len_bytes = bytes.len() as u64 - item.offset;
        items.push(item);
    }
    let store = Memory::new();
    store.put(FILE, &bytes, PutMode::Create).unwrap();
    put_metadata(&store, &items);
    (store, items)
}

fn put_metadata(store: &Memory, items: &[StoredItem]) {
    let metadata = encode_metadata(items).unwrap();
    store
        .put(METADATA_FILE, &metadata, PutMode::Replace)
        .unwrap();
}

#[test]
fn a_written_folder_is_read() {
    let (store, items) = folder(2);
    let model = open_folder(&store, "").unwrap();
    assert_eq!(model.values["step"], json!(7));
    let piece = &model.tensors["w1"].pieces[0];
    assert_eq!(piece.offset, items[2].offset);
    let len_bytes = items[2].len_bytes;
    assert_eq!(piece.encoding, Encoding::TorchArchive { len_bytes });
    assert_eq!(model.files[0].key, FILE);
}

#[test]
fn metadata_that_points_outside_its_files_is_damage() {
    let (store, items) = folder(1);
    for change in [
        |item: &mut StoredItem| item.len_bytes += 1,
        |item: &mut StoredItem| item.offset = u64::MAX >> 1,
        |item: &mut StoredItem| item.file = "__1_0.distcp".into(),
        |item: &mut StoredItem| item.file = "../secret".into(),
    ] {
        let mut items = items.clone();
        change(&mut items[1]);
        put_metadata(&store, &items);
        let error = open_folder(&store, "").unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_folder_without_metadata_never_finished() {
    let (store, _) = folder(1);
    store.delete(METADATA_FILE).unwrap();
    let error = open_folder(&store, "").unwrap_err();
    assert!(matches!(error, Error::Unfinished { .. }), "{error}");
}

#[test]
fn only_names_like_those_of_torch_make_a_folder() {
    for name in [".metadata", "__0_0.distcp", "__12.metadata"] {
        assert!(is_folder(&[name]), "{name}");
    }
    for name in ["__.metadata", "x.metadata", "0_0.distcp", "__init__.py"] {
        assert!(!is_folder(&[name]), "{name}");
    }
}

/// A folder with `count` tensors of two bytes, all in one safetensors file.
fn folder_of_safetensors(count: usize) -> Memory {
    let entry = |index: usize| safetensors::Entry {
        name: format!("w{index}"),
        dtype: DType::U8,
        shape: vec![2],
        begin: 2 * index as u64,
        end: 2 * index as u64 + 2,
    };
    let entries: Vec<_> = (0..count).map(entry).collect();
    let mut bytes = safetensors::encode(&entries, &[], 8).unwrap();
    bytes.resize(bytes.len() + 2 * count, 0);
    let item = |entry: safetensors::Entry| StoredItem {
        name: entry.name,
        tensor: Some((entry.dtype, entry.shape)),
        file: FILE.into(),
        offset: 0,
        len_bytes: 2,
    };
    let store = Memory::new();
    store.put(FILE, &bytes, PutMode::Create).unwrap();
    put_metadata(&store, &entries.into_iter().map(item).collect::<Vec<_>>());
    store
}

#[test]
fn tensors_in_one_safetensors_file_are_found_and_must_be_as_described() {
    let store = folder_of_safetensors(3);
    let model = open_folder(&store, "").unwrap();
    let places = model.tensors.values().map(|tensor| tensor.pieces[0].offset);
    let places: Vec<u64> = places.collect();
    assert_eq!(
        places,
        [0, 2, 4].map(|begin| model.files[0].len_bytes - 6 + begin)
    );
    for (name, dtype) in [("w0", DType::I8), ("none", DType::U8)] {
        let item = StoredItem {
            name: name.into(),
            tensor: Some((dtype, vec![2])),
            file: FILE.into(),
            offset: 0,
            len_bytes: 2,
        };
        put_metadata(&store, &[item]);
        let error = open_folder(&store, "").unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
}

/// The shortest of a few times that opening takes.
fn shortest(store: &Memory) -> f64 {
    let times = (0..3).map(|_| {
        let start = std::time::Instant::now();
        open_folder(store, "").unwrap();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

#[test]
fn ten_times_the_chunks_take_about_ten_times_as_long() {
    for folder in [|count| folder(count).0, folder_of_safetensors] {
        let growth = shortest(&folder(10_000)) / shortest(&folder(1_000));
        // A step that looks at all chunks for each of them would make it a hundred.
        assert!(growth < 35.0, "{growth}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn damaged_metadata_is_read_or_refused(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let (store, items) = folder(2);
        let mut metadata = encode_metadata(&items).unwrap();
        let at = at.index(metadata.len());
        metadata[at] = to;
        store.put(METADATA_FILE, &metadata, PutMode::Replace).unwrap();
        let _ = open_folder(&store, "");
        metadata.truncate(cut.index(metadata.len()));
        store.put(METADATA_FILE, &metadata, PutMode::Replace).unwrap();
        prop_assert!(open_folder(&store, "").is_err());
    }
}
