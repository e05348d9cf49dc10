//! Loops for the widest vectors that a machine has.

/// Runs loops compiled once for each width of vectors, the widest this machine has.
///
/// Only what is inlined into `work` is compiled that way: mark it, and all it calls, `#[inline(always)]`. No operation is fused or
/// reordered, so results are the same bits on every machine.
#[inline(always)]
pub(crate) fn vectorized<T>(work: impl FnOnce() -> T) -> T {
    pulp::Arch::new().dispatch(work)
}
