//! Finds out how the bytes of a block are best sorted, without compressing it.

use std::f32::consts::LN_2;
use std::sync::LazyLock;

/// The widths of elements that are tried.
pub(super) const WIDTHS: [usize; 4] = [1, 2, 4, 8];

/// The most bytes of a block that are looked at, so that looking costs little beside compressing.
const SAMPLE_BYTES: usize = 16 << 10;

/// They are taken in stretches of so many bytes.
const STRETCH_BYTES: usize = 1 << 10;

/// A plane whose bytes have more bits than this, of eight, is as good as random.
const RANDOM_BITS: f32 = 7.7;

/// A block that is not expected to lose this part of its bytes is kept as it is: unpacking costs more than reading it.
const WORTHWHILE: f32 = 0.97;

/// Twice as many planes must gain more than this part of the block: more of them take longer.
const NARROWER: f32 = 0.005;

/// `n · log2(n)` for every count that a sample can have.
static WEIGHTS: LazyLock<Vec<f32>> = LazyLock::new(|| {
    let weight = |n: usize| {
        let n = f32::from(u16::try_from(n).unwrap_or(u16::MAX));
        if n > 0.0 { n * n.log2() } else { 0.0 }
    };
    (0..=SAMPLE_BYTES).map(weight).collect()
});

/// How often each value occurs at each place of eight bytes.
type Counts = [[u16; 256]; 8];

/// How a block is to be sorted: for each plane, whether it is worth compressing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sorting {
    pub(super) planes: Vec<bool>,
}

/// The sorting that makes `block` smallest, as far as a sample tells; `None` if none is worth it.
pub(super) fn measure(block: &[u8]) -> Option<Sorting> {
    let counts = count(block);
    let bits =
        |width: usize| -> Vec<f32> { (0..width).map(|p| plane_bits(&counts, width, p)).collect() };
    let cost = |bits: &[f32]| {
        let planes = bits
            .iter()
            .map(|bits| if is_worth_it(*bits) { *bits } else { 8.0 });
        planes.sum::<f32>() / (8 * bits.len()) as f32
    };
    let mut best = bits(1);
    for width in &WIDTHS[1..] {
        let wider = bits(*width);
        if cost(&wider) < cost(&best) - NARROWER {
            best = wider;
        }
    }
    (cost(&best) < WORTHWHILE).then(|| Sorting {
        planes: best.iter().map(|bits| is_worth_it(*bits)).collect(),
    })
}

fn is_worth_it(bits: f32) -> bool {
    bits <= RANDOM_BITS
}

/// Counts the bytes of a sample. Its stretches begin at multiples of eight.
fn count(block: &[u8]) -> Counts {
    let mut counts = [[0; 256]; 8];
    let stretches = (SAMPLE_BYTES / STRETCH_BYTES).max(1);
    let step = (block.len() / stretches)
        .next_multiple_of(8)
        .max(STRETCH_BYTES);
    for begin in (0..block.len()).step_by(step) {
        let end = (begin + STRETCH_BYTES).min(block.len());
        for eight in block[begin..end].chunks(8) {
            for (place, byte) in eight.iter().enumerate() {
                counts[place][usize::from(*byte)] += 1;
            }
        }
    }
    counts
}

/// The bits that a byte of plane `plane` has on average, if elements are `width` bytes wide.
///
/// A sample has fewer values than there are, and so seems to have less bits; that is made up for (Miller and Madow).
fn plane_bits(counts: &Counts, width: usize, plane: usize) -> f32 {
    let (mut total, mut weight, mut values) = (0, 0.0, 0);
    for value in 0..=u8::MAX {
        let places = counts.iter().skip(plane).step_by(width);
        let counts = places.map(|counts| usize::from(counts[usize::from(value)]));
        let count: usize = counts.sum();
        total += count;
        weight += WEIGHTS[count.min(SAMPLE_BYTES)];
        values += usize::from(count > 0);
    }
    if total == 0 {
        return 8.0;
    }
    let seen = (WEIGHTS[total.min(SAMPLE_BYTES)] - weight) / total as f32;
    let unseen = (values - 1) as f32 / (2.0 * LN_2 * total as f32);
    (seen + unseen).min(8.0)
}
