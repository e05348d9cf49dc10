//! Programs of Paddle and their parameters: tensors that are accepted lie in the file, one after another.

#![no_main]

use cairn_formats::open_file;
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &[u8], &[u8])| {
    let (old, program, parameters) = input;
    let store = Memory::new();
    let name = if old { "m.pdmodel" } else { "m.json" };
    for (key, bytes) in [(name, program), ("m.pdiparams", parameters)] {
        store.put(key, bytes, PutMode::Create).expect("memory");
    }
    let Ok(model) = open_file(&store, "m.pdiparams") else {
        return;
    };
    let mut end = 0;
    for tensor in model.tensors.values() {
        let count = tensor.shape.iter().product();
        let len = tensor.dtype.len_bytes(count).expect("it was accepted") as u64;
        assert!(tensor.pieces[0].offset >= end);
        end = tensor.pieces[0].offset + len;
    }
    assert!(end <= parameters.len() as u64);
});
