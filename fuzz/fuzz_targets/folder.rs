//! Files under the names that each format knows: whatever is accepted is read to its end, and no tensor is larger than it says.

#![no_main]

use cairn_formats::open;
use cairn_fuzz::read_all;
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// What tools call their files.
const NAMES: [&str; 16] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pdparams",
    "model_state.tp00.pdparams",
    "model.pdiparams",
    "model.pdmodel",
    ".metadata",
    "__0_0.distcp",
    "0_0.distcp",
    "0.metadata",
    "common.pt",
    "metadata.json",
    "config.json",
];

fuzz_target!(|files: Vec<(u8, &[u8])>| {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    for (name, bytes) in files {
        let key = NAMES[usize::from(name) % NAMES.len()];
        store.put(key, bytes, PutMode::Replace).expect("memory");
    }
    let Ok(model) = open(store.as_ref()) else {
        return;
    };
    read_all(&store, &model);
});
