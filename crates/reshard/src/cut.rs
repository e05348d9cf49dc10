//! How a box is cut when several ranks share the work.

use cairn_sharding::Region;

/// The dim along which a box is cut into up to `parts`: the outermost with enough indices for a fair
/// cut, which keeps runs long, or else the longest.
pub(crate) fn cut_dim(region: &Region, parts: usize) -> Option<usize> {
    const INDICES_PER_PART: usize = 4;
    let wanted = parts.saturating_mul(INDICES_PER_PART);
    let dims = 0..region.ndim();
    let enough = dims.clone().find(|&dim| region.extent[dim] >= wanted);
    enough.or_else(|| dims.rev().max_by_key(|&dim| region.extent[dim]))
}

/// Cuts a box after its first `indices` along `dim`.
pub(crate) fn cut_after(region: &Region, dim: usize, indices: usize) -> (Region, Region) {
    let (offset, extent) = (region.offset[dim], region.extent[dim]);
    (
        region.with_dim(dim, offset, indices),
        region.with_dim(dim, offset + indices, extent - indices),
    )
}
