//! Reads whole tensors of a model, for tests.

use crate::Error;
use crate::model::{Encoding, Model};
use cairn_store::{Local, Store};
use cairn_tensor::{Runs, Strided};

/// The folder of fixtures called `name`.
pub(crate) fn fixture(name: &str) -> Local {
    Local::new(format!("{}/fixtures/{name}", env!("CARGO_MANIFEST_DIR")))
}

/// The bytes of a tensor in row-major order, read piece by piece. No element may be read twice, or not at all.
pub(crate) fn bytes(store: &dyn Store, model: &Model, name: &str) -> Result<Vec<u8>, Error> {
    let tensor = model.find(name).unwrap_or_else(|| panic!("no `{name}`"));
    let dtype = tensor.dtype;
    let whole = Strided::contiguous(&tensor.shape);
    let mut all = vec![0; dtype.bits() / 8 * tensor.shape.iter().product::<usize>()];
    let mut elements = 0;
    for at in &tensor.pieces {
        elements += at.piece.element_count();
        for part in at.piece.boxes() {
            let strides = match &at.encoding {
                Encoding::Strided(strides) => strides.clone(),
                _ => part.local.strides,
            };
            let from = Strided {
                strides,
                ..part.local
            };
            let mut stored = vec![0; from.end().unwrap() * dtype.bits() / 8];
            model.files[at.file].read_at(store, at.offset, &mut stored)?;
            let to = whole
                .region(&part.region.offset, &part.region.extent)
                .unwrap();
            let runs = Runs::between(dtype, &from, &to).unwrap();
            runs.copy(&stored, &mut all).unwrap();
        }
    }
    assert_eq!(elements, tensor.shape.iter().product::<usize>(), "{name}");
    Ok(all)
}
