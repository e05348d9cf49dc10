//! A source with its floats in another type.

use super::Transformed;
use crate::Error;
use crate::computed::SharedSource;
use crate::source::StoredTensor;
use cairn_recipe::{Compiled, Piece, SourceBox, Step, Target};
use cairn_sharding::Region;
use cairn_tensor::DType;
use std::sync::Arc;

/// The types that are cast to others: those of weights. Narrower floats mean nothing without their scales.
const CAST_FROM: [DType; 4] = [DType::F64, DType::F32, DType::Bf16, DType::F16];

/// `source` with the floats whose names are `chosen` in `dtype`; integers, and floats of less than 16 bits, stay as they are.
///
/// Values are rounded once, to the nearest, ties to even, as they are read.
///
/// # Errors
/// If `source` contradicts itself.
pub fn recast(
    source: SharedSource,
    dtype: DType,
    chosen: impl Fn(&str) -> bool,
) -> Result<SharedSource, Error> {
    let mut compiled = Compiled::default();
    for name in source.names() {
        let Some(stored) = source.find(name) else {
            continue;
        };
        let is_cast = CAST_FROM.contains(&stored.dtype) && chosen(name);
        let target = same(name, stored, is_cast.then_some(dtype));
        compiled.targets.insert(name.to_string(), target);
    }
    Ok(Arc::new(Transformed::new(source, &compiled)?))
}

/// The tensor as it is, or cast.
fn same(name: &str, stored: StoredTensor, dtype: Option<DType>) -> Target {
    let region = Region::whole(&stored.shape);
    let to = dtype.filter(|dtype| *dtype != stored.dtype);
    let piece = Piece {
        region: region.clone(),
        source: Some(SourceBox {
            name: name.to_string(),
            region,
        }),
        steps: to.map(Step::Cast).into_iter().collect(),
    };
    Target {
        dtype: to.unwrap_or(stored.dtype),
        shape: stored.shape,
        pieces: Some(vec![piece]),
    }
}
