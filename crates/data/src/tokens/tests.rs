//! What is written is read back, and every damage is found and named.

use crate::testing::{counting, damage, fields, memory, written};
use crate::{Documents, Error, TokenFile, TokenWriter, Width, bounds, document_at};
use cairn_store::{Local, PutMode, Store};
use proptest::prelude::*;
use serde_json::json;
use std::error::Error as _;
use std::sync::Arc;

fn message(error: &Error) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

fn refused(store: &Arc<dyn Store>) -> String {
    message(&TokenFile::open(store, "a").unwrap_err())
}

#[test]
fn the_bytes_of_a_small_file_stay_the_same() {
    let store = memory();
    let mut writer = TokenWriter::create(&store, "a", Width::U16, Some(300)).unwrap();
    writer.push(&[1, 256, 299], None).unwrap();
    writer.push(&[], Some(&fields(json!({"id": 7})))).unwrap();
    assert_eq!(writer.finish().unwrap(), 64 + 8 + 16 + 16 + 8);
    let bytes = store.get("a").unwrap();
    let words = |bytes: &[u8]| -> Vec<u64> {
        let (words, _) = bytes.as_chunks();
        words.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    assert_eq!(&bytes[..8], b"CAIRNTOK");
    assert_eq!(words(&bytes[8..56]), [1 | 2 << 32, 2, 3, 300, 8, 0]);
    assert_eq!(bytes[60..64], [0x27, 0x59, 0x42, 0x62]);
    assert_eq!(bytes[64..72], [1, 0, 0, 1, 43, 1, 0, 0]);
    assert_eq!(words(&bytes[72..104]), [3, 3, 0, 8]);
    assert_eq!(&bytes[104..], br#"{"id":7}"#);
}

#[test]
fn fields_come_back_with_their_documents() {
    let store = memory();
    let mut writer = TokenWriter::create(&store, "a", Width::U32, None).unwrap();
    let first = fields(json!({"url": "https://example.org/ä", "score": 0.1}));
    writer.push(&[1], Some(&first)).unwrap();
    writer.push(&[2], None).unwrap();
    writer
        .push(&[3], Some(&fields(json!({"n": [1, null]}))))
        .unwrap();
    writer.finish().unwrap();
    let file = TokenFile::open(&store, "a").unwrap();
    assert_eq!(file.fields(0).unwrap(), Some(first));
    assert_eq!(file.fields(1).unwrap(), None);
    assert_eq!(
        file.fields(2).unwrap(),
        Some(fields(json!({"n": [1, null]})))
    );
}

#[test]
fn a_file_without_documents_is_a_file() {
    let file = TokenFile::open(&written(&[]), "a").unwrap();
    assert_eq!((file.documents(), file.tokens()), (0, 0));
}

#[test]
fn files_larger_than_memory_may_be_wait_beside_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Local::new(folder.path()));
    let mut writer = TokenWriter::create(&store, "data/a", Width::U32, None).unwrap();
    let document: Vec<u32> = (0..3_000_000).collect();
    writer.push(&document, None).unwrap();
    assert_eq!(store.list("data/a.spool").unwrap().len(), 1);
    writer.push(&document[..5], None).unwrap();
    writer.finish().unwrap();
    let listed: Vec<String> = store
        .list("")
        .unwrap()
        .into_iter()
        .map(|meta| meta.key)
        .collect();
    assert_eq!(listed, ["data/a"]);
    let file = TokenFile::open(&store, "data/a").unwrap();
    assert_eq!(file.read(0..3_000_000).unwrap(), document);
    assert_eq!(file.read(2_999_999..3_000_002).unwrap(), [2_999_999, 0, 1]);
}

#[test]
fn what_a_killed_writer_left_is_removed_by_the_next() {
    let store = memory();
    store
        .put("a.spool/tokens/00000000", b"old", PutMode::Create)
        .unwrap();
    let writer = TokenWriter::create(&store, "a", Width::U16, None).unwrap();
    writer.finish().unwrap();
    assert_eq!(store.list("").unwrap().len(), 1);
}

#[test]
fn a_file_that_exists_is_not_replaced() {
    let store = written(&[]);
    let error = TokenWriter::create(&store, "a", Width::U16, None).unwrap_err();
    assert_eq!(
        message(&error),
        "cannot use the file `a`: object `a` already exists"
    );
}

#[test]
fn tokens_that_do_not_fit_are_refused_when_written() {
    let store = memory();
    let mut writer = TokenWriter::create(&store, "a", Width::U16, None).unwrap();
    let error = writer.push(&[65_536], None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token 65536 does not fit `a`: its tokens have two bytes"
    );
    let mut writer = TokenWriter::create(&store, "a", Width::U16, Some(10)).unwrap();
    let error = writer.push(&[9, 10], None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token 10 does not fit `a`: the vocabulary has 10 tokens"
    );
}

#[test]
fn foreign_files_are_told_from_damaged_ones() {
    let store = memory();
    assert_eq!(
        refused(&store),
        "cannot use the file `a`: object `a` does not exist"
    );
    store.put("a", b"CAIRNTOK", PutMode::Create).unwrap();
    assert_eq!(
        refused(&store),
        "`a` is no file of tokens: it has 8 bytes, and the header alone has 64"
    );
    store.put("a", &[7; 100], PutMode::Replace).unwrap();
    assert_eq!(
        refused(&store),
        "`a` is no file of tokens: it does not begin with `CAIRNTOK`"
    );
}

#[test]
fn a_later_version_is_no_damage() {
    let store = written(&[]);
    damage(&store, "a", |bytes| {
        bytes[8] = 2;
        let crc = super::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    });
    assert_eq!(
        refused(&store),
        "`a` is no file of tokens: it has version 2 of the format, and this reads version 1"
    );
}

#[test]
fn a_file_that_claims_more_than_any_file_holds_is_refused() {
    let store = written(&[]);
    damage(&store, "a", |bytes| {
        bytes[24..32].fill(0xff);
        let crc = super::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    });
    assert_eq!(
        refused(&store),
        "`a` is damaged: no file holds 18446744073709551615 tokens in 0 documents"
    );
}

#[test]
fn every_cut_and_every_changed_byte_of_the_header_is_found() {
    let whole = written(&counting(&[3, 2])).get("a").unwrap();
    let store = memory();
    for len in 0..whole.len() {
        store.put("a", &whole[..len], PutMode::Replace).unwrap();
        TokenFile::open(&store, "a").unwrap_err();
    }
    for place in 0..64 {
        store.put("a", &whole, PutMode::Replace).unwrap();
        damage(&store, "a", |bytes| bytes[place] ^= 1);
        TokenFile::open(&store, "a").unwrap_err();
    }
}

#[test]
fn ends_out_of_order_name_the_document() {
    let store = written(&counting(&[4, 4, 4]));
    damage(&store, "a", |bytes| bytes[64 + 48 + 8] = 3);
    let file = TokenFile::open(&store, "a").unwrap();
    assert_eq!(
        file.ends(0..3).unwrap_err().to_string(),
        "document 1 of `a` is damaged: it begins at token 4 and ends at token 3"
    );
    damage(&store, "a", |bytes| bytes[64 + 48 + 8] = 13);
    let file = TokenFile::open(&store, "a").unwrap();
    assert_eq!(
        file.ends(1..2).unwrap_err().to_string(),
        "document 1 of `a` is damaged: it ends at token 13 of 12"
    );
    assert_eq!(file.ends(0..1).unwrap(), [4]);
}

#[test]
fn what_does_not_exist_is_not_read() {
    let file = TokenFile::open(&written(&counting(&[4, 4])), "a").unwrap();
    assert_eq!(
        file.read(6..9).unwrap_err().to_string(),
        "the end of tokens must be 6 to 8, not 9"
    );
    file.ends(1..3).unwrap_err();
    bounds(&file, u64::MAX).unwrap_err();
    #[expect(clippy::reversed_empty_ranges, reason = "a mistake")]
    file.read(2..1).unwrap_err();
}

#[test]
fn damaged_fields_name_the_document() {
    let store = memory();
    let mut writer = TokenWriter::create(&store, "a", Width::U32, None).unwrap();
    writer
        .push(&[1, 2], Some(&fields(json!({"id": 7}))))
        .unwrap();
    writer.finish().unwrap();
    damage(&store, "a", |bytes| *bytes.last_mut().unwrap() = b'!');
    let error = TokenFile::open(&store, "a")
        .unwrap()
        .fields(0)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("document 0 of `a` is damaged: its fields are no JSON object"),
        "{error}"
    );
    damage(&store, "a", |bytes| bytes[64 + 8 + 8] = 200);
    let error = TokenFile::open(&store, "a")
        .unwrap()
        .fields(0)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "document 0 of `a` is damaged: its fields are said to be at bytes 0 to 200"
    );
}

proptest! {
    #[test]
    fn any_documents_come_back(lengths in prop::collection::vec(0usize..6, 0..20), wide in any::<bool>()) {
        let width = if wide { Width::U32 } else { Width::U16 };
        let (store, all) = (memory(), counting(&lengths));
        let mut writer = TokenWriter::create(&store, "a", width, None).unwrap();
        for document in &all {
            writer.push(document, None).unwrap();
        }
        writer.finish().unwrap();
        let file = TokenFile::open(&store, "a").unwrap();
        prop_assert_eq!(file.documents(), all.len() as u64);
        for (number, document) in (0..).zip(&all) {
            let place = bounds(&file, number).unwrap();
            prop_assert_eq!(&file.read(place.clone()).unwrap(), document);
            for token in place {
                prop_assert_eq!(document_at(&file, token).unwrap(), number);
            }
        }
    }

    #[test]
    fn no_changed_number_makes_a_panic(place in 0usize..13, number in prop_oneof![any::<u64>(), 0u64..40], cut in 0usize..9) {
        let store = memory();
        let mut writer = TokenWriter::create(&store, "a", Width::U32, Some(9)).unwrap();
        writer.push(&[1, 2, 3], Some(&fields(json!({"id": 7})))).unwrap();
        writer.push(&[4], None).unwrap();
        writer.finish().unwrap();
        damage(&store, "a", |bytes| {
            bytes[place * 8..][..8].copy_from_slice(&number.to_le_bytes());
            let crc = super::crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&crc.to_le_bytes());
            bytes.truncate(bytes.len() - cut);
        });
        if let Ok(file) = TokenFile::open(&store, "a") {
            let (documents, tokens) = (file.documents(), file.tokens());
            let _ = file.ends(0..documents);
            let _ = file.read(0..tokens);
            for document in 0..documents {
                let _ = file.fields(document);
            }
        }
    }
}
