//! Small files of tokens for tests.

use crate::{Documents, Fields, TokenFile, TokenWriter, Width};
use cairn_store::{Memory, PutMode, Store};
use std::sync::Arc;

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

/// A file `a` of documents, and the store it is in.
pub(crate) fn written(documents: &[Vec<u32>]) -> Arc<dyn Store> {
    let store = memory();
    let mut writer = TokenWriter::create(&store, "a", Width::U32, None).unwrap();
    for document in documents {
        writer.push(document, None).unwrap();
    }
    writer.finish().unwrap();
    store
}

pub(crate) fn documents(documents: &[Vec<u32>]) -> Arc<dyn Documents> {
    let store = written(documents);
    Arc::new(TokenFile::open(&store, "a").unwrap())
}

/// Documents of these lengths whose tokens are 1, 2, 3 and so on through all of them.
pub(crate) fn counting(lengths: &[usize]) -> Vec<Vec<u32>> {
    let mut next = 1..;
    let document = |length: &usize| next.by_ref().take(*length).collect();
    lengths.iter().map(document).collect()
}

/// Changes the bytes of an object.
pub(crate) fn damage(store: &Arc<dyn Store>, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = store.get(key).unwrap();
    change(&mut bytes);
    store.put(key, &bytes, PutMode::Replace).unwrap();
}

pub(crate) fn fields(json: serde_json::Value) -> Fields {
    serde_json::from_value(json).unwrap()
}
