//! Arrays of zarr in an Orbax folder: whatever is accepted is read to its end, and no tensor is larger than it says.

#![no_main]

use cairn_formats::open;
use cairn_fuzz::read_all;
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|input: (bool, &[u8], &[u8], &[u8])| {
    let (new, description, first, second) = input;
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let (name, chunks) = match new {
        true => ("x/zarr.json", ["x/c/0/0", "x/c/0/1"]),
        false => ("x/.zarray", ["x/0.0", "x/0.1"]),
    };
    let files = [
        (name, description),
        (chunks[0], first),
        (chunks[1], second),
        ("_METADATA", b"{}"),
    ];
    for (key, bytes) in files {
        store.put(key, bytes, PutMode::Create).expect("memory");
    }
    let Ok(model) = open(store.as_ref()) else {
        return;
    };
    read_all(&store, &model);
});
