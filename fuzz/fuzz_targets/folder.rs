//! Files under the names that each format knows: whatever is accepted is read to its end, and no tensor is larger than it says.
//!
//! Each file is the number of its name, its length in two bytes, and its bytes, so that a seed is real files one after another.

#![no_main]

use cairn_formats::{open, open_file};
use cairn_fuzz::read_all;
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// What tools call their files. Seeds have their numbers: new names go to the end.
const NAMES: [&str; 20] = [
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
    "mp_rank_00_model_states.pt",
    "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
    "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
    "1_0.distcp",
];

fuzz_target!(|bytes: &[u8]| {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let mut rest = bytes;
    let mut first = None;
    while let [name, low, high, files @ ..] = rest {
        let key = NAMES[usize::from(*name) % NAMES.len()];
        let len = usize::from(u16::from_le_bytes([*low, *high]));
        let (file, behind) = files.split_at(len.min(files.len()));
        store.put(key, file, PutMode::Replace).expect("memory");
        first = first.or(Some(key));
        rest = behind;
    }
    if let Ok(model) = open(store.as_ref()) {
        read_all(&store, &model);
    }
    if let Some(Ok(model)) = first.map(|key| open_file(store.as_ref(), key)) {
        read_all(&store, &model);
    }
});
