//! Where the elements of a box lie after a reshape.
//!
//! Dims fall into the smallest groups with as many elements on both sides: `[6, 4] -> [2, 3, 4]` is `[6] -> [2, 3]` and
//! `[4] -> [4]`. Inside a group the box is cut into runs of neighbours, and these into runs that are a box on both sides.

use crate::error::{MAX_PIECES, Problem};
use cairn_sharding::Region;
use cairn_tensor::row_major_strides;
use std::ops::Range;

/// The boxes of `to` that `region` of `from` becomes, each with the part of `region` it is, in the same row-major order.
///
/// Both shapes have as many elements, and `region` has some.
pub(super) fn regrid(
    from: &[usize],
    to: &[usize],
    region: &Region,
) -> Result<Vec<(Region, Region)>, Problem> {
    let mut boxes = vec![(Region::whole(&[]), Region::whole(&[]))];
    for (left, right) in groups(from, to) {
        let part = Region {
            offset: region.offset[left.clone()].to_vec(),
            extent: region.extent[left.clone()].to_vec(),
        };
        let found = regrid_group(&from[left], &to[right], &part)?;
        if boxes.len().saturating_mul(found.len()) > MAX_PIECES {
            return Err(too_many());
        }
        boxes = boxes
            .iter()
            .flat_map(|(a, b)| found.iter().map(move |(c, d)| (beside(a, c), beside(b, d))))
            .collect();
    }
    Ok(boxes)
}

fn too_many() -> Problem {
    Problem::TooLarge {
        what: "the number of pieces of a tensor",
    }
}

/// The box of all the dims of both.
fn beside(a: &Region, b: &Region) -> Region {
    Region {
        offset: [a.offset.as_slice(), &b.offset].concat(),
        extent: [a.extent.as_slice(), &b.extent].concat(),
    }
}

/// The smallest ranges of dims that have the same number of elements, in order.
fn groups(from: &[usize], to: &[usize]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut groups = Vec::new();
    let (mut left, mut right) = (0, 0);
    while left < from.len() || right < to.len() {
        let (start, begin) = (left, right);
        let (mut a, mut b) = (1usize, 1usize);
        loop {
            if a <= b && left < from.len() && (a < b || left == start) {
                a = a.saturating_mul(from[left]);
                left += 1;
            } else if right < to.len() && (b < a || right == begin) {
                b = b.saturating_mul(to[right]);
                right += 1;
            } else {
                break;
            }
        }
        groups.push((start..left, begin..right));
    }
    groups
}

fn regrid_group(
    from: &[usize],
    to: &[usize],
    region: &Region,
) -> Result<Vec<(Region, Region)>, Problem> {
    if from == to {
        return Ok(vec![(region.clone(), region.clone())]);
    }
    let mut found = Vec::new();
    for run in runs(from, region)? {
        cut(from, to, run, &mut found)?;
    }
    Ok(found)
}

/// The runs of neighbours that a box is, in order.
fn runs(shape: &[usize], region: &Region) -> Result<Vec<Range<usize>>, Problem> {
    let strides = row_major_strides(shape);
    // Dims from `whole` on are taken whole, so a run goes on over them.
    let whole = (0..shape.len())
        .rposition(|dim| region.extent[dim] != shape[dim])
        .unwrap_or(0);
    let (Some(&extent), Some(&stride)) = (region.extent.get(whole), strides.get(whole)) else {
        return Ok(std::iter::once(0..1).collect());
    };
    let mut starts = vec![region.offset[whole] * stride];
    for dim in (0..whole).rev() {
        if starts.len().saturating_mul(region.extent[dim]) > MAX_PIECES {
            return Err(too_many());
        }
        let (places, stride) = (region.offset[dim]..region.end(dim), strides[dim]);
        starts = places
            .flat_map(|index| starts.iter().map(move |start| start + index * stride))
            .collect();
    }
    let len = extent * stride;
    Ok(starts.into_iter().map(|start| start..start + len).collect())
}

/// Cuts a run into such that are a box in both shapes.
fn cut(
    from: &[usize],
    to: &[usize],
    run: Range<usize>,
    found: &mut Vec<(Region, Region)>,
) -> Result<(), Problem> {
    let mut rest = vec![run];
    while let Some(run) = rest.pop() {
        let (here, there) = (longest_box(from, &run), longest_box(to, &run));
        let (end, cut) = match here.1 < there.1 {
            true => (here.1, longest_box(to, &(run.start..here.1))),
            false => (there.1, longest_box(from, &(run.start..there.1))),
        };
        if here.1 == there.1 {
            found.push((here.0, there.0));
        } else if cut.1 == end {
            let same = run.start..end;
            found.push((longest_box(from, &same).0, longest_box(to, &same).0));
        } else {
            // Shorter than either: try again with what both can begin with.
            rest.extend([cut.1..run.end, run.start..cut.1]);
            continue;
        }
        if found.len() > MAX_PIECES {
            return Err(too_many());
        }
        if end < run.end {
            rest.push(end..run.end);
        }
    }
    Ok(())
}

/// The longest beginning of a run that is a box, and where it ends.
fn longest_box(shape: &[usize], run: &Range<usize>) -> (Region, usize) {
    let strides = row_major_strides(shape);
    let offset: Vec<usize> = (0..shape.len())
        .map(|dim| run.start / strides[dim] % shape[dim])
        .collect();
    let mut extent = vec![1; shape.len()];
    let mut end = run.start + 1;
    for dim in 0..shape.len() {
        // A box spans this dim if the run starts at its first element and is long enough to fill what lies inside it.
        let inside_whole = offset[dim + 1..].iter().all(|&index| index == 0);
        let count = ((run.end - run.start) / strides[dim]).min(shape[dim] - offset[dim]);
        if inside_whole && count > 0 {
            extent[dim] = count;
            extent[dim + 1..].copy_from_slice(&shape[dim + 1..]);
            end = run.start + count * strides[dim];
            break;
        }
    }
    (Region { offset, extent }, end)
}
