//! The members of a manifest: a layout that is accepted comes back the same when it is written again.

#![no_main]

use cairn_checkpoint::{Manifest, testing::sample_manifest};
use cairn_fuzz::seal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &str| {
    // The bytes as they are meet the seal, the sealed ones what lies behind it.
    let _ = Manifest::decode("COMMIT", body.as_bytes());
    let Ok(manifest) = Manifest::decode("COMMIT", seal(body).as_bytes()) else {
        return;
    };
    let written = sample_manifest(&manifest.layout, manifest.writers());
    let again = Manifest::decode("COMMIT", &written).expect("what we write, we read");
    assert_eq!(again.layout, manifest.layout);
});
