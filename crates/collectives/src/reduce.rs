//! Terms of many ranks combined, in the order of the ranks.

use crate::Error;
use cairn_tensor::{DType, Overflow, ReduceOp, cast, finish_average, reduce_into};

/// Bytes of a term that are combined at once: what all ranks have of so many fits into a cache.
const STRETCH_BYTES: usize = 32 << 10;

/// Combines `terms`, all as long as `out`.
pub(crate) fn combine(
    dtype: DType,
    op: ReduceOp,
    terms: &[&[u8]],
    out: &mut [u8],
) -> Result<(), Error> {
    for (index, stretch) in out.chunks_mut(STRETCH_BYTES).enumerate() {
        let begin = index * STRETCH_BYTES;
        let range = begin..begin + stretch.len();
        let parts = terms.iter().map(|term| &term[range.clone()]);
        match is_narrow(dtype) {
            true => combine_wide(dtype, op, parts, stretch)?,
            false => combine_stretch(dtype, op, parts, stretch)?,
        }
    }
    Ok(())
}

fn combine_stretch<'a>(
    dtype: DType,
    op: ReduceOp,
    terms: impl Iterator<Item = &'a [u8]>,
    out: &mut [u8],
) -> Result<(), Error> {
    let mut count = 0;
    for term in terms {
        match count {
            0 => out.copy_from_slice(term),
            _ => reduce_into(op, dtype, out, term)?,
        }
        count += 1;
    }
    if op == ReduceOp::Avg {
        finish_average(dtype, out, count)?;
    }
    Ok(())
}

/// As [`combine_stretch`], by way of `f32`, so that elements are rounded once.
fn combine_wide<'a>(
    dtype: DType,
    op: ReduceOp,
    terms: impl Iterator<Item = &'a [u8]>,
    out: &mut [u8],
) -> Result<(), Error> {
    let elements = out.len() * 8 / dtype.bits();
    let mut wide = Vec::new();
    for term in terms {
        let mut one = vec![0; 4 * elements];
        cast(dtype, DType::F32, term, &mut one, Overflow::Native)?;
        wide.push(one);
    }
    let mut sum = vec![0; 4 * elements];
    combine_stretch(DType::F32, op, wide.iter().map(Vec::as_slice), &mut sum)?;
    Ok(cast(DType::F32, dtype, &sum, out, Overflow::Native)?)
}

fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::Bf16 | DType::F16)
}
