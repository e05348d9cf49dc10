//! Whether tensors in memory are casts of others, found out by several threads.

use super::{DERIVED_FROM, NARROWING};
use cairn_tensor::{DType, Overflow, cast};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Threads that compare at once.
const THREADS: usize = 4;

/// The bytes of a target that are compared at once.
const STRETCH_BYTES: usize = 1 << 20;

/// The claim that the elements of `target` are those of `source`, cast.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Elements of type [`DERIVED_FROM`].
    pub source: &'a [u8],
    /// As many elements, one after another in the same order.
    pub target: &'a [u8],
    /// Their type, one of [`DERIVED_DTYPES`](super::DERIVED_DTYPES).
    pub dtype: DType,
}

/// Which of the claims hold on every element, bit for bit. NaN counts as equal to NaN, whatever its payload.
pub fn hold(claims: &[Claim]) -> Vec<bool> {
    let held: Vec<AtomicBool> = claims.iter().map(fits).map(AtomicBool::new).collect();
    let work: Vec<(usize, usize)> = claims
        .iter()
        .enumerate()
        .flat_map(|(claim, it)| {
            let starts = (0..it.target.len()).step_by(STRETCH_BYTES);
            starts.map(move |start| (claim, start))
        })
        .collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS.min(work.len()) {
            scope.spawn(|| {
                let mut room = vec![0; STRETCH_BYTES];
                while let Some((claim, start)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let known = &held[*claim];
                    if known.load(Ordering::Relaxed)
                        && !holds_at(&claims[*claim], *start, &mut room)
                    {
                        known.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    held.into_iter().map(AtomicBool::into_inner).collect()
}

/// Whether there are as many elements on both sides.
fn fits(claim: &Claim) -> bool {
    let twice = claim.target.len().checked_mul(NARROWING);
    twice == Some(claim.source.len()) && claim.target.len().is_multiple_of(2)
}

fn holds_at(claim: &Claim, start: usize, room: &mut [u8]) -> bool {
    let end = claim.target.len().min(start + STRETCH_BYTES);
    let target = &claim.target[start..end];
    let source = &claim.source[NARROWING * start..NARROWING * end];
    let room = &mut room[..target.len()];
    let rounded = cast(DERIVED_FROM, claim.dtype, source, room, Overflow::Native);
    rounded.is_ok() && (room == target || same_but_for_nan(claim.dtype, room, target))
}

fn same_but_for_nan(dtype: DType, one: &[u8], other: &[u8]) -> bool {
    let infinity: u16 = match dtype {
        DType::Bf16 => 0x7f80,
        DType::F16 => 0x7c00,
        _ => return false,
    };
    let (ones, _) = one.as_chunks();
    let (others, _) = other.as_chunks();
    ones.iter().zip(others).all(|(one, other)| {
        let is_nan = |bits: &[u8; 2]| u16::from_le_bytes(*bits) & 0x7fff > infinity;
        one == other || (is_nan(one) && is_nan(other))
    })
}

#[cfg(test)]
mod tests {
    //! One bit anywhere is seen, and so is a claim that cannot be.

    use super::super::DERIVED_DTYPES;
    use super::*;
    use proptest::prelude::*;

    fn cast_of(source: &[u8], dtype: DType) -> Vec<u8> {
        let mut target = vec![0; source.len() / NARROWING];
        cast(DERIVED_FROM, dtype, source, &mut target, Overflow::Native).unwrap();
        target
    }

    fn one(source: &[u8], target: &[u8], dtype: DType) -> bool {
        hold(&[Claim {
            source,
            target,
            dtype,
        }]) == [true]
    }

    proptest! {
        #[test]
        fn a_cast_holds_and_a_flipped_bit_does_not(
            values in prop::collection::vec(-1e4f32..1e4, 1..100), at in any::<prop::sample::Index>(), bit in 0..8,
        ) {
            let source: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            for dtype in DERIVED_DTYPES {
                let mut target = cast_of(&source, dtype);
                prop_assert!(one(&source, &target, dtype));
                let at = at.index(target.len());
                target[at] ^= 1_u8 << bit;
                prop_assert!(!one(&source, &target, dtype));
            }
        }
    }

    #[test]
    fn a_flipped_bit_in_the_last_of_many_stretches_is_seen() {
        let source = vec![0; 2 * (3 * STRETCH_BYTES + 2)];
        let mut target = cast_of(&source, DType::Bf16);
        assert!(one(&source, &target, DType::Bf16));
        *target.last_mut().unwrap() = 0x80;
        assert!(
            !one(&source, &target, DType::Bf16),
            "minus zero is not zero"
        );
    }

    #[test]
    fn each_claim_has_its_own_answer() {
        let (source, target) = ([0; 8], [0; 4]);
        let claim = |target, dtype| Claim {
            source: &source,
            target,
            dtype,
        };
        let claims = [
            claim(&target[..], DType::Bf16),
            claim(&target[..2], DType::Bf16),
            claim(&[1, 0, 0, 0], DType::F16),
            claim(&target[..], DType::F16),
        ];
        assert_eq!(hold(&claims), [true, false, false, true]);
        assert_eq!(hold(&[]), [false; 0]);
        assert!(one(&[], &[], DType::Bf16));
    }

    #[test]
    fn nan_is_nan_whatever_its_payload() {
        let source = f32::NAN.to_le_bytes();
        for (dtype, nan) in [(DType::Bf16, 0xffff_u16), (DType::F16, 0x7c01)] {
            assert!(one(&source, &nan.to_le_bytes(), dtype));
        }
        assert!(!one(&source, &0x7f80_u16.to_le_bytes(), DType::Bf16));
        assert!(!one(
            &1f32.to_le_bytes(),
            &0xffff_u16.to_le_bytes(),
            DType::Bf16
        ));
    }
}
