//! A box of a piece, as a piece: the steps walked backwards, so that no more is read than is needed.

use super::regrid::regrid;
use crate::compiled::{Operand, Piece, SourceBox, Step};
use cairn_sharding::Region;

/// The part of a piece that is `region` of the tensor, which lies inside it.
pub(crate) fn narrow(piece: &Piece, region: &Region) -> Piece {
    if *region == piece.region {
        return piece.clone();
    }
    let within = relative(region, &piece.region);
    let (source, steps) = match &piece.source {
        None => (None, piece.steps.clone()),
        Some(source) => {
            let operand = narrow_operand(source, &piece.steps, &within);
            (Some(operand.source), operand.steps)
        }
    };
    Piece {
        region: region.clone(),
        source,
        steps,
    }
}

/// The same box, counted from the start of `outer`.
fn relative(region: &Region, outer: &Region) -> Region {
    let offset = region.offset.iter().zip(&outer.offset);
    Region {
        offset: offset.map(|(a, b)| a - b).collect(),
        extent: region.extent.clone(),
    }
}

/// What is read and done for only `wanted` of what the steps give.
fn narrow_operand(source: &SourceBox, steps: &[Step], wanted: &Region) -> Operand {
    let mut shapes = vec![source.region.extent.clone()];
    for step in steps {
        let last = shapes.last().expect("there is the source's");
        shapes.push(shape_after(last, step));
    }
    let mut wanted = wanted.clone();
    let mut done: Vec<Step> = Vec::new(); // The last step first.
    for (index, step) in steps.iter().enumerate().rev() {
        if wanted == Region::whole(&shapes[index + 1]) {
            // All of it: from here back nothing changes.
            done.extend(steps[..=index].iter().rev().cloned());
            wanted = Region::whole(&source.region.extent);
            break;
        }
        match before(step, &shapes[index], &shapes[index + 1], &wanted) {
            Some((earlier, step)) => {
                wanted = earlier;
                done.extend(step);
            }
            None => {
                done.push(Step::Slice(wanted));
                done.extend(steps[..=index].iter().rev().cloned());
                wanted = Region::whole(&source.region.extent);
                break;
            }
        }
    }
    for (offset, start) in wanted.offset.iter_mut().zip(&source.region.offset) {
        *offset += start;
    }
    done.reverse();
    Operand {
        source: SourceBox {
            name: source.name.clone(),
            region: wanted,
        },
        steps: done,
    }
}

/// The box that `wanted` of the result of a step is made of, and the step that makes it; `None` if it is no box.
fn before(
    step: &Step,
    from: &[usize],
    to: &[usize],
    wanted: &Region,
) -> Option<(Region, Option<Step>)> {
    let same = |step: &Step| Some((wanted.clone(), Some(step.clone())));
    match step {
        Step::Cast(_) | Step::Fill(_) => same(step),
        Step::Permute(order) => {
            let mut earlier = wanted.clone();
            for (dim, &was) in order.iter().enumerate() {
                earlier.offset[was] = wanted.offset[dim];
                earlier.extent[was] = wanted.extent[dim];
            }
            Some((earlier, Some(step.clone())))
        }
        Step::Reshape(_) => match regrid(to, from, wanted).ok()?.as_slice() {
            [(_, earlier)] => {
                let step = Step::Reshape(wanted.extent.clone());
                let idle = earlier.extent == wanted.extent;
                Some((earlier.clone(), (!idle).then_some(step)))
            }
            _ => None,
        },
        Step::Slice(region) => {
            let offset = region.offset.iter().zip(&wanted.offset);
            let earlier = Region {
                offset: offset.map(|(a, b)| a + b).collect(),
                extent: wanted.extent.clone(),
            };
            Some((earlier, None))
        }
        Step::Reinterpret { from: was, to: is } => {
            let last = wanted.ndim().checked_sub(1)?;
            let scaled = |len: usize| {
                let bits = len.checked_mul(is.bits())?;
                bits.is_multiple_of(was.bits()).then_some(bits / was.bits())
            };
            let (offset, extent) = (scaled(wanted.offset[last])?, scaled(wanted.extent[last])?);
            Some((wanted.with_dim(last, offset, extent), Some(step.clone())))
        }
        Step::Dequant {
            scales,
            block,
            phase,
        } => Some((wanted.clone(), Some(dequant(scales, block, phase, wanted)))),
        Step::Quant { block, .. } => {
            let whole = |dim: usize| {
                wanted.offset[dim].is_multiple_of(block[dim])
                    && (wanted.end(dim) == to[dim] || wanted.end(dim).is_multiple_of(block[dim]))
            };
            (0..to.len()).all(whole).then(|| same(step))?
        }
        Step::QuantScales { block, .. } => {
            let mut earlier = wanted.clone();
            for dim in 0..from.len() {
                let start = wanted.offset[dim] * block[dim];
                earlier.offset[dim] = start;
                earlier.extent[dim] = from[dim].min(wanted.end(dim) * block[dim]) - start;
            }
            Some((earlier, Some(step.clone())))
        }
    }
}

/// The step for `wanted` of what it gave.
fn dequant(scales: &Operand, block: &[usize], phase: &[usize], wanted: &Region) -> Step {
    let begins = wanted.offset.iter().zip(phase).map(|(a, b)| a + b);
    let begins: Vec<usize> = begins.collect();
    let blocks = blocks_of(&begins, &wanted.extent, block);
    Step::Dequant {
        scales: narrow_operand(&scales.source, &scales.steps, &blocks),
        block: block.to_vec(),
        phase: begins.iter().zip(block).map(|(a, b)| a % b).collect(),
    }
}

/// The blocks that a box meets.
pub(super) fn blocks_of(offset: &[usize], extent: &[usize], block: &[usize]) -> Region {
    let dims = offset.iter().zip(extent).zip(block);
    let (offset, extent) = dims
        .map(|((&offset, &extent), &block)| {
            let first = offset / block;
            (first, (offset + extent).div_ceil(block) - first)
        })
        .unzip();
    Region { offset, extent }
}

/// The shape that steps leave.
pub(super) fn extent_after(from: &[usize], steps: &[Step]) -> Vec<usize> {
    let after = |shape: Vec<usize>, step| shape_after(&shape, step);
    steps.iter().fold(from.to_vec(), after)
}

fn shape_after(from: &[usize], step: &Step) -> Vec<usize> {
    match step {
        Step::Permute(order) => order.iter().map(|&dim| from[dim]).collect(),
        Step::Reshape(shape) => shape.clone(),
        Step::Slice(region) => region.extent.clone(),
        Step::Reinterpret { from: was, to: is } => {
            let mut shape = from.to_vec();
            if let Some(last) = shape.last_mut() {
                *last = last.saturating_mul(was.bits()) / is.bits();
            }
            shape
        }
        Step::QuantScales { block, .. } => {
            let dims = from.iter().zip(block);
            dims.map(|(len, block)| len.div_ceil(*block)).collect()
        }
        Step::Cast(_) | Step::Fill(_) | Step::Dequant { .. } | Step::Quant { .. } => from.to_vec(),
    }
}
