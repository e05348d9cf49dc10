//! Files of tokens, ours and Megatron's: documents of whatever is accepted are read, or refused by name.

#![no_main]

use cairn_data::{Documents, Megatron, TokenFile, bounds, document_at};
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::fuzz_target;

/// Documents and tokens beyond these are not asked for.
const MAX_DOCUMENTS: u64 = 64;
const MAX_TOKENS: u64 = 4096;

fuzz_target!(|input: (bool, &[u8], &[u8])| {
    let (ours, first, second) = input;
    let store = Memory::new();
    store.put("x.bin", first, PutMode::Create).expect("memory");
    store.put("x.idx", second, PutMode::Create).expect("memory");
    match ours {
        true => TokenFile::open(&store, "x.bin")
            .map(|file| read(&file))
            .unwrap_or_default(),
        false => Megatron::open(&store, "x")
            .map(|file| read(&file))
            .unwrap_or_default(),
    }
});

fn read(file: &dyn Documents) {
    let count = file.documents().min(MAX_DOCUMENTS);
    let _ = file.ends(0..count);
    for document in 0..count {
        let _ = file.fields(document);
        let Ok(bounds) = bounds(file, document) else {
            continue;
        };
        assert!(bounds.end <= file.tokens());
        if bounds.end - bounds.start <= MAX_TOKENS {
            let _ = file.read(bounds);
        }
    }
    let _ = document_at(file, file.tokens() / 2);
    // What is not there is refused.
    assert!(
        file.read(file.tokens()..file.tokens().saturating_add(1))
            .is_err()
    );
}
