//! Files of a DeepSpeed step that say anything in plain values: they are refused or opened, and nothing else.

#![no_main]

use cairn_formats::open;
use cairn_formats::torch_zip::value_archive;
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8])| {
    let store = Memory::new();
    let files = [
        ("mp_rank_00_model_states.pt", input.0),
        ("zero_pp_rank_0_mp_rank_00_optim_states.pt", input.1),
    ];
    for (key, json) in files {
        let Ok(value) = serde_json::from_slice(json) else {
            return;
        };
        if let Some(bytes) = value_archive(&value) {
            store.put(key, &bytes, PutMode::Create).expect("memory");
        }
    }
    let _ = open(&store);
});
