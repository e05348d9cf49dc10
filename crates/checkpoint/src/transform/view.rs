//! Permutations and reshapes of boxes that stay where they are: only their strides change.

use cairn_recipe::Step;
use cairn_sharding::{LocalBox, Piece, Region};
use cairn_tensor::Strided;
use std::ops::Range;

/// Whether the step only says where elements go.
pub(super) fn is_view(step: &Step) -> bool {
    matches!(step, Step::Permute(_) | Step::Reshape(_) | Step::Slice(_))
}

/// A box after its dims were permuted.
pub(super) fn permuted(held: &LocalBox, dims: &[usize]) -> LocalBox {
    let pick = |values: &[usize]| dims.iter().map(|dim| values[*dim]).collect::<Vec<_>>();
    LocalBox {
        region: Region {
            offset: pick(&held.region.offset),
            extent: pick(&held.region.extent),
        },
        local: Strided {
            offset: held.local.offset,
            shape: pick(&held.local.shape),
            strides: pick(&held.local.strides),
        },
    }
}

/// The region that becomes `region` when dims are permuted.
pub(super) fn unpermuted(region: &Region, dims: &[usize]) -> Region {
    let mut before = region.clone();
    for (dim, of) in dims.iter().enumerate() {
        before.offset[*of] = region.offset[dim];
        before.extent[*of] = region.extent[dim];
    }
    before
}

/// A box of a tensor of shape `from` after that was reshaped to `to`; `None` if strides cannot say where its elements are.
pub(super) fn reshaped(held: &LocalBox, from: &[usize], to: &[usize]) -> Option<Vec<LocalBox>> {
    let mut results = vec![LocalBox {
        region: Region::whole(&[]),
        local: Strided {
            offset: held.local.offset,
            shape: Vec::new(),
            strides: Vec::new(),
        },
    }];
    for group in groups(from, to) {
        let parts = reshaped_group(held, from, to, &group)?;
        let joined = results
            .iter()
            .flat_map(|head| parts.iter().map(|part| joined(head, part)));
        results = joined.collect();
    }
    Some(results)
}

/// Neighbouring dims before and after a reshape that have the same elements.
pub(super) struct Group {
    pub(super) from: Range<usize>,
    pub(super) to: Range<usize>,
}

/// The smallest groups of dims into which a reshape falls. No dim is 0, and the numbers of elements are equal.
pub(super) fn groups(from: &[usize], to: &[usize]) -> Vec<Group> {
    let mut groups = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        let first = (i, j);
        let mut before = from.get(i).copied().unwrap_or(1);
        let mut after = to.get(j).copied().unwrap_or(1);
        i = (i + 1).min(from.len());
        j = (j + 1).min(to.len());
        while before != after {
            if before < after {
                before *= from[i];
                i += 1;
            } else {
                after *= to[j];
                j += 1;
            }
        }
        groups.push(Group {
            from: first.0..i,
            to: first.1..j,
        });
    }
    groups
}

/// The part of a box that lies in one group of dims, reshaped. Its local offset counts from that of the box.
fn reshaped_group(
    held: &LocalBox,
    from: &[usize],
    to: &[usize],
    group: &Group,
) -> Option<Vec<LocalBox>> {
    let dims = group.from.clone();
    let (from, to) = (&from[dims.clone()], &to[group.to.clone()]);
    let region = Region {
        offset: held.region.offset[dims.clone()].to_vec(),
        extent: held.region.extent[dims.clone()].to_vec(),
    };
    let strides = &held.local.strides[dims];
    if from == to {
        let local = Strided {
            offset: 0,
            shape: region.extent.clone(),
            strides: strides.to_vec(),
        };
        return Some(vec![LocalBox { region, local }]);
    }
    let (range, stride) = stretch(&region, from, strides)?;
    let flat = Piece {
        region: Region::whole(to),
        flat: Some(range),
    };
    let mut parts = flat.boxes();
    for part in &mut parts {
        part.local.offset *= stride;
        for each in &mut part.local.strides {
            *each = each.saturating_mul(stride);
        }
    }
    Some(parts)
}

/// The row-major elements of a tensor that a box is, and how far apart they lie, if they are neighbours and equally far apart.
fn stretch(region: &Region, shape: &[usize], strides: &[usize]) -> Option<(Range<usize>, usize)> {
    let mut start = 0;
    let mut whole = 1;
    let mut len: usize = 1;
    let mut stride = None;
    for dim in (0..shape.len()).rev() {
        let extent = region.extent[dim];
        if extent > 1 {
            let between = *stride.get_or_insert(strides[dim]);
            // All that lies inside of this dim is whole, and its neighbours follow after exactly that.
            if len != whole || strides[dim] != len.checked_mul(between)? {
                return None;
            }
        }
        start += region.offset[dim] * whole;
        len *= extent;
        whole *= shape[dim];
    }
    Some((start..start + len, stride.unwrap_or(1)))
}

fn joined(head: &LocalBox, part: &LocalBox) -> LocalBox {
    let join = |a: &[usize], b: &[usize]| [a, b].concat();
    LocalBox {
        region: Region {
            offset: join(&head.region.offset, &part.region.offset),
            extent: join(&head.region.extent, &part.region.extent),
        },
        local: Strided {
            offset: head.local.offset + part.local.offset,
            shape: join(&head.local.shape, &part.local.shape),
            strides: join(&head.local.strides, &part.local.strides),
        },
    }
}

/// A region of a tensor of shape `from` that has every element of `region` of the same tensor as `to`.
pub(super) fn unreshaped(region: &Region, from: &[usize], to: &[usize]) -> Region {
    let mut before = Region::whole(from);
    for Group { from: was, to: is } in groups(from, to) {
        if from[was.clone()] == to[is.clone()] {
            before.offset[was.clone()].copy_from_slice(&region.offset[is.clone()]);
            before.extent[was].copy_from_slice(&region.extent[is]);
        }
    }
    before
}
