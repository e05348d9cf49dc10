//! Operations run from right to left.

use super::{Cut, Operation, Regroup};
use crate::error::Problem;

/// The operation that undoes one.
///
/// `shapes` are those of the tensors it is to give back, where they are known. Without them, joined tensors are taken to be alike.
pub(crate) fn inverse(
    operation: &Operation,
    shapes: Option<&[Vec<usize>]>,
    count: usize,
) -> Result<Operation, Problem> {
    let first = shapes.and_then(|shapes| shapes.first());
    let word = operation.word();
    let shape = |reason| {
        let shape = first.ok_or(Problem::Irreversible {
            operation: word,
            reason,
        })?;
        let dims = shape.iter().map(|len| i64::try_from(*len));
        dims.collect::<Result<Vec<i64>, _>>()
            .map_err(|_| Problem::TooLarge { what: "a tensor" })
    };
    Ok(match operation {
        Operation::Regroup(regroup) => Operation::Regroup(regroup.inverse(shapes)?),
        Operation::Permute(order) => Operation::Permute(inverse_order(order)),
        Operation::Cast {
            from: Some(from),
            to,
            on_state,
        } => Operation::Cast {
            from: Some(*to),
            to: *from,
            on_state: *on_state,
        },
        Operation::Cast { .. } => {
            let reason = "it does not say which type there was before";
            return Err(Problem::Irreversible {
                operation: word,
                reason,
            });
        }
        Operation::Reshape(_) => Operation::Reshape(shape("the shape before is not known")?),
        Operation::Pad { .. } | Operation::PadToMultiple { .. } => {
            Operation::Unpad(shape("the shape before is not known")?)
        }
        Operation::Unpad(_) => Operation::Pad {
            shape: shape("the shape before is not known")?,
            fill: 0.0,
        },
        Operation::Rotary {
            head,
            dim,
            to_pairs,
        } => Operation::Rotary {
            head: *head,
            dim: *dim,
            to_pairs: !to_pairs,
        },
        Operation::Stack { dim } => Operation::Unstack { dim: *dim, count },
        Operation::Unstack { dim, .. } => Operation::Stack { dim: *dim },
        Operation::Dequant(scaled) => Operation::Quant(scaled.clone()),
        Operation::Quant(scaled) => Operation::Dequant(scaled.clone()),
        Operation::Tie(_) => Operation::Untie,
        Operation::Untie => Operation::Tie(count),
    })
}

fn inverse_order(order: &[i64]) -> Vec<i64> {
    let mut inverse = vec![-1; order.len()];
    for (at, dim) in order.iter().enumerate() {
        let dim = usize::try_from(*dim).or_else(|_| usize::try_from(*dim + order.len() as i64));
        if let Some(place) = dim.ok().and_then(|dim| inverse.get_mut(dim)) {
            *place = at as i64;
        }
    }
    match inverse.contains(&-1) {
        true => order.to_vec(), // No order at all: whoever runs it says so.
        false => inverse,
    }
}

impl Regroup {
    fn inverse(&self, shapes: Option<&[Vec<usize>]>) -> Result<Self, Problem> {
        let sizes = match shapes {
            Some(shapes) => Some(self.part_sizes(shapes)?),
            None => self.written_sizes(),
        };
        let mut at = 0;
        let cut = |count: &usize| {
            let places = at..at + count;
            at += count;
            match &sizes {
                Some(sizes) => {
                    Cut::Sizes(self.order[places].iter().map(|part| sizes[*part]).collect())
                }
                None => Cut::Equal(*count),
            }
        };
        let cuts = self.joins.iter().map(cut).collect();
        let mut order = vec![0; self.order.len()];
        for (place, part) in self.order.iter().enumerate() {
            order[*part] = place;
        }
        Ok(Self {
            axis: self.axis,
            cuts,
            order,
            joins: self.cuts.iter().map(Cut::count).collect(),
        })
    }

    /// The size of each part, if all are written down.
    fn written_sizes(&self) -> Option<Vec<usize>> {
        let sizes = self.cuts.iter().map(|cut| match cut {
            Cut::Sizes(sizes) => Some(sizes.as_slice()),
            Cut::Equal(_) => None,
        });
        let sizes: Option<Vec<&[usize]>> = sizes.collect();
        sizes.map(|sizes| sizes.concat())
    }

    /// The size of each part that tensors of these shapes are cut into.
    fn part_sizes(&self, shapes: &[Vec<usize>]) -> Result<Vec<usize>, Problem> {
        let mut sizes = Vec::with_capacity(self.order.len());
        for (cut, shape) in self.cuts.iter().zip(shapes) {
            let dim = super::run::dim(self.axis, shape.len())?;
            sizes.extend(cut.sizes(shape, dim)?);
        }
        Ok(sizes)
    }
}
