//! Pairs of files that Megatron itself wrote, and damaged ones.

use crate::testing::{damage, memory};
use crate::{Documents, Megatron, bounds, document_at};
use cairn_store::{PutMode, Store};
use std::sync::Arc;

/// Written by `IndexedDatasetBuilder` of megatron-core: the documents are the sequences [1, 2, 3] and [4], [500, 60000], [7] and [8, 9], and none.
const INDEX_U16: &str = "4d4d49444944580000010000000000000008050000000000000005000000000000000300000001000000020000000100000002000000\
    0000000000000000060000000000000008000000000000000c000000000000000e00000000000000\
    00000000000000000200000000000000030000000000000005000000000000000500000000000000";
const TOKENS_U16: &str = "0100020003000400f40160ea070008000900";
const INDEX_I32: &str = "4d4d49444944580000010000000000000004050000000000000005000000000000000300000001000000020000000100000002000000\
    00000000000000000c00000000000000100000000000000018000000000000001c00000000000000\
    00000000000000000200000000000000030000000000000005000000000000000500000000000000";
const TOKENS_I32: &str = "01000000020000000300000004000000f401000060ea0000070000000800000009000000";

fn hex(text: &str) -> Vec<u8> {
    let byte = |place: usize| u8::from_str_radix(&text[place..place + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn pair(index: &str, tokens: &str) -> Arc<dyn Store> {
    let store = memory();
    store.put("a.idx", &hex(index), PutMode::Create).unwrap();
    store.put("a.bin", &hex(tokens), PutMode::Create).unwrap();
    store
}

/// Why the pair cannot be opened after a change of one of its files.
fn refused(key: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let store = pair(INDEX_I32, TOKENS_I32);
    damage(&store, key, change);
    Megatron::open(&store, "a").unwrap_err().to_string()
}

#[test]
fn documents_of_megatron_are_read() {
    for (index, tokens) in [(INDEX_U16, TOKENS_U16), (INDEX_I32, TOKENS_I32)] {
        let dataset = Megatron::open(&pair(index, tokens), "a").unwrap();
        assert_eq!((dataset.documents(), dataset.tokens()), (4, 9));
        assert_eq!(dataset.ends(0..4).unwrap(), [4, 6, 9, 9]);
        assert_eq!(dataset.ends(1..2).unwrap(), [6]);
        assert!(dataset.ends(2..2).unwrap().is_empty());
        assert_eq!(bounds(&dataset, 2).unwrap(), 6..9);
        assert_eq!(
            dataset.read(0..9).unwrap(),
            [1, 2, 3, 4, 500, 60_000, 7, 8, 9]
        );
        assert_eq!(document_at(&dataset, 5).unwrap(), 1);
        dataset.read(8..10).unwrap_err();
        dataset.ends(4..5).unwrap_err();
    }
}

#[test]
fn modes_of_images_are_passed_over() {
    let store = pair(INDEX_I32, TOKENS_I32);
    damage(&store, "a.idx", |bytes| bytes.extend([0; 5]));
    assert_eq!(Megatron::open(&store, "a").unwrap().documents(), 4);
}

#[test]
fn every_type_of_tokens_is_read_and_floats_are_not() {
    let store = pair(INDEX_U16, TOKENS_U16);
    damage(&store, "a.idx", |bytes| bytes[17] = 3);
    let dataset = Megatron::open(&store, "a").unwrap();
    assert_eq!(dataset.read(0..5).unwrap(), [1, 2, 3, 4, 500]);
    assert_eq!(
        dataset.read(4..6).unwrap_err().to_string(),
        "document 1 of `a.bin` is damaged: token 5 of the file is -5536"
    );
    assert_eq!(
        refused("a.idx", |bytes| bytes[17] = 7),
        "`a.idx` is no file of tokens: it holds floats"
    );
    assert_eq!(
        refused("a.idx", |bytes| bytes[17] = 9),
        "`a.idx` is no file of tokens: its type of tokens is 9, which is not known"
    );
}

#[test]
fn files_that_do_not_fit_together_are_refused() {
    assert_eq!(
        refused("a.bin", |bytes| bytes.truncate(32)),
        "`a.bin` is damaged: it has 32 bytes, and the index says 36"
    );
    assert_eq!(
        refused("a.idx", |bytes| bytes.truncate(100)),
        "`a.idx` is damaged: it is said to have 5 sequences in 4 documents, which its 100 bytes do not"
    );
    assert_eq!(
        refused("a.idx", |bytes| bytes[18..26].fill(0xff)),
        "`a.idx` is damaged: it is said to have 18446744073709551615 sequences in 4 documents, which its 134 bytes do not"
    );
    assert_eq!(
        refused("a.idx", |bytes| bytes[126] = 4),
        "`a.idx` is damaged: its documents are the sequences 0 to 4, and there are 5"
    );
    assert_eq!(
        refused("a.idx", |bytes| bytes[9] = 2),
        "`a.idx` is no file of tokens: it has version 2 of Megatron's index, and this reads version 1"
    );
    assert!(refused("a.idx", |bytes| bytes[0] = 0).contains("MMIDIDX"));
    assert!(refused("a.idx", |bytes| bytes.truncate(3)).contains("shorter"));
}

#[test]
fn no_changed_byte_of_an_index_makes_a_panic() {
    for place in 0..134 {
        for bit in [1, 0x40, 0x80] {
            let store = pair(INDEX_I32, TOKENS_I32);
            damage(&store, "a.idx", |bytes| bytes[place] ^= bit);
            if let Ok(dataset) = Megatron::open(&store, "a") {
                let documents = dataset.documents();
                let _ = dataset.ends(0..documents);
                let _ = dataset.read(0..dataset.tokens());
            }
        }
    }
}

#[test]
fn a_document_out_of_order_is_named() {
    let store = pair(INDEX_I32, TOKENS_I32);
    damage(&store, "a.idx", |bytes| bytes[102] = 6);
    let dataset = Megatron::open(&store, "a").unwrap();
    let error = dataset.ends(0..4).unwrap_err().to_string();
    assert!(
        error.starts_with("document 1 of `a.idx` is damaged"),
        "{error}"
    );
}
