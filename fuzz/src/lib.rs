//! What the fuzz targets share.

pub mod run;

use cairn_formats::{Chunks, Model};
use cairn_sharding::TensorSpec;
use cairn_store::Store;
use cairn_tensor::element_count;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Tensors beyond this are opened, but not read.
pub const MAX_READ_BYTES: u64 = 1 << 20;

/// The bytes of a tensor, if they can be counted.
pub fn len_bytes(spec: &TensorSpec) -> Option<usize> {
    spec.dtype().len_bytes(element_count(spec.shape())?)
}

/// SHA-256 in hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Closes a JSON object with the seal of the format, so that hostile members get past it.
pub fn seal(body: &str) -> String {
    format!("{body},\"sha256\":\"{}\"}}\n", sha256_hex(body.as_bytes()))
}

/// Reads every tensor of a model that was accepted, to its end.
pub fn read_all(store: &Arc<dyn Store>, model: &Model) {
    let chunks = Chunks::default();
    for at in model.tensors.values().flat_map(|tensor| &tensor.pieces) {
        let file = &model.files[at.file];
        let Ok(reader) = chunks.open(store, file, at.file) else {
            continue;
        };
        if file.len_bytes <= MAX_READ_BYTES {
            let mut bytes = vec![0; usize::try_from(file.len_bytes).expect("small")];
            let _ = reader.read_at(0, &mut bytes);
        }
    }
}
