//! What a service answers: lists of uploads. A key or a name may be anything; nothing is made up.

#![no_main]

use cairn_store::testing::uploads_in;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &str| {
    if let Ok(uploads) = uploads_in(answer) {
        let len: usize = uploads
            .iter()
            .map(|upload| upload.key.len() + upload.id.len())
            .sum();
        assert!(len <= answer.len());
    }
});
