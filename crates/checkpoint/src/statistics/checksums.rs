//! Tensors that are equal as far as their stored checksums tell.

use crate::Error;
use crate::checksum::BLOCK_BYTES;
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use cairn_sharding::Region;

/// Whether both sources store the pair in the same pieces, at the same places in their blocks, with equal checksums of all
/// blocks. If not, nothing is known.
pub(super) fn equal_by_checksum(
    left: &dyn Source,
    right: &dyn Source,
    (name, other): (&str, &str),
    tensor: &StoredTensor,
) -> Result<bool, Error> {
    if right.find(other).is_none_or(|twin| twin != *tensor) {
        return Ok(false);
    }
    let whole = Region::whole(&tensor.shape);
    let (ours, theirs) = (left.pieces(name, &whole)?, right.pieces(other, &whole)?);
    if ours.len() != theirs.len() {
        return Ok(false);
    }
    for (one, two) in ours.iter().zip(&theirs) {
        let alike = one.piece == two.piece && one.strides.is_none() && two.strides.is_none();
        let len = tensor.dtype.len_bytes(one.piece.element_count());
        let (true, Some(len)) = (alike, len) else {
            return Ok(false);
        };
        let (file, twin) = (left.open_file(one.file)?, right.open_file(two.file)?);
        let blocks = blocks(&file, one, len).zip(blocks(&twin, two, len));
        if blocks.is_none_or(|(one, two)| one != two) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where a piece begins in its first block, and the checksums of all blocks it lies in.
fn blocks<'a>(
    file: &'a SourceFile,
    piece: &StoredPiece,
    len_bytes: usize,
) -> Option<(usize, &'a [u32])> {
    let start = usize::try_from(file.data_start.checked_add(piece.offset)?).ok()?;
    let end = start.checked_add(len_bytes)?.div_ceil(BLOCK_BYTES);
    let crcs = file.crcs.as_ref()?.get(start / BLOCK_BYTES..end)?;
    Some((start % BLOCK_BYTES, crcs))
}
