//! Arrays of zarr in an Orbax folder: whatever is accepted is read to its end, and no tensor is larger than it says.

#![no_main]

use cairn_formats::{Chunks, open};
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Tensors beyond this are opened, but not read.
const MAX_READ_BYTES: u64 = 1 << 20;

fuzz_target!(|input: (bool, &[u8], &[u8], &[u8])| {
    let (new, description, first, second) = input;
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let (name, chunks) = match new {
        true => ("x/zarr.json", ["x/c/0/0", "x/c/0/1"]),
        false => ("x/.zarray", ["x/0.0", "x/0.1"]),
    };
    let files = [(name, description), (chunks[0], first), (chunks[1], second), ("_METADATA", b"{}")];
    for (key, bytes) in files {
        store.put(key, bytes, PutMode::Create).expect("memory");
    }
    let Ok(model) = open(store.as_ref()) else {
        return;
    };
    let chunks = Chunks::default();
    for at in model.tensors.values().flat_map(|tensor| &tensor.pieces) {
        let file = &model.files[at.file];
        let reader = chunks.open(&store, file, at.file).expect("it was there");
        if file.len_bytes <= MAX_READ_BYTES {
            let mut bytes = vec![0; usize::try_from(file.len_bytes).expect("small")];
            let _ = reader.read_at(0, &mut bytes);
        }
    }
});
