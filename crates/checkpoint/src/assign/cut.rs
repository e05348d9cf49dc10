//! Where a piece may be cut in two, and what the parts are.

use crate::Error;
use cairn_sharding::{Piece, Region, TensorSpec};
use cairn_tensor::{DType, Runs, Strided};

/// Pieces smaller than this are never cut.
pub(crate) const MIN_CUT_BYTES: u64 = 1 << 20;
/// Rows longer than this are cut inside.
pub(crate) const MAX_ROW_BYTES: u64 = 4 << 20;

/// The ways to cut a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grain {
    /// Not at all.
    Whole,
    /// Between indices of dim `dim`; one index takes `bytes`.
    Rows { dim: usize, bytes: u64 },
    /// Between flat elements, `elements` of which take `bytes`.
    Flat { elements: usize, bytes: u64 },
}

/// The fewest elements that fill whole bytes: 1 of ordinary types, 2 of four bits, 4 of six.
pub(crate) fn byte_group(dtype: DType) -> usize {
    let whole = |n: &usize| (n * dtype.bits()).is_multiple_of(8);
    (1..=8)
        .find(whole)
        .expect("eight elements of any type fill whole bytes")
}

/// The bytes of `piece` of the tensor `spec`, which must be whole: no reader could take half a byte from elsewhere.
pub(crate) fn piece_bytes(name: &str, spec: &TensorSpec, piece: &Piece) -> Result<u64, Error> {
    let len_bytes = spec.dtype().len_bytes(piece.element_count());
    len_bytes
        .filter(|_| starts_and_ends_on_bytes(spec, piece))
        .map(|len| len as u64)
        .ok_or_else(|| Error::State {
            name: name.to_string(),
            reason: format!(
                "has a piece `{piece}` that begins or ends inside a byte as {}",
                spec.dtype()
            ),
        })
}

fn starts_and_ends_on_bytes(spec: &TensorSpec, piece: &Piece) -> bool {
    let whole = Strided::contiguous(spec.shape());
    spec.dtype().bits() >= 8
        || piece.boxes().iter().all(|held| {
            let inside = whole.region(&held.region.offset, &held.region.extent);
            inside.is_some_and(|inside| Runs::between(spec.dtype(), &inside, &held.local).is_ok())
        })
}

impl Grain {
    pub(crate) fn of(dtype: DType, piece: &Piece, len_bytes: u64) -> Self {
        if len_bytes < MIN_CUT_BYTES {
            return Grain::Whole;
        }
        if piece.flat.is_none()
            && let Some(rows) = rows(dtype, &piece.region)
        {
            return rows;
        }
        let elements = byte_group(dtype);
        Grain::Flat {
            elements,
            bytes: (elements * dtype.bits() / 8) as u64,
        }
    }

    /// The allowed cut nearest to `position` in a piece of `len_bytes`; halves go up.
    pub(crate) fn nearest_cut(self, position: u64, len_bytes: u64) -> u64 {
        let unit = match self {
            Grain::Whole => len_bytes,
            Grain::Rows { bytes, .. } | Grain::Flat { bytes, .. } => bytes,
        };
        if unit == 0 {
            return 0;
        }
        let below = position / unit * unit;
        let above = (below + unit).min(len_bytes);
        if position - below < above - position {
            below
        } else {
            above
        }
    }

    /// The part of `piece` from byte `begin` to byte `end`, both allowed cuts.
    pub(crate) fn part(self, piece: &Piece, begin: u64, end: u64) -> Piece {
        let count = |position: u64, bytes: u64| {
            usize::try_from(position / bytes).expect("a cut lies inside a piece in memory")
        };
        match self {
            Grain::Whole => piece.clone(),
            Grain::Rows { dim, bytes } => {
                let (first, last) = (count(begin, bytes), count(end, bytes));
                let mut region = piece.region.clone();
                region.offset[dim] += first;
                region.extent[dim] = last - first;
                Piece { region, flat: None }
            }
            Grain::Flat { elements, bytes } => {
                let base = piece.flat.as_ref().map_or(0, |range| range.start);
                let total = piece.element_count();
                let (first, last) = (count(begin, bytes) * elements, count(end, bytes) * elements);
                if first == 0 && last == total {
                    return piece.clone();
                }
                Piece {
                    region: piece.region.clone(),
                    flat: Some(base + first..base + last),
                }
            }
        }
    }
}

/// Cutting between rows, if a row fills whole bytes and is not too long.
fn rows(dtype: DType, region: &Region) -> Option<Grain> {
    let dim = region.extent.iter().position(|extent| *extent > 1)?;
    let row: usize = region.extent[dim + 1..].iter().product();
    let bytes = dtype.len_bytes(row)? as u64;
    (bytes <= MAX_ROW_BYTES && bytes > 0).then_some(Grain::Rows { dim, bytes })
}
