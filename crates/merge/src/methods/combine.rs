//! Combinations of whole tensors whose factors follow from their inner products.
//!
//! Every mean on a sphere is a sum of the inputs with some factors, and the factors depend only on how long the inputs are and on
//! the angles between them. One pass collects the inner products, in `f64`; the geometry is then done on a few numbers; a second
//! pass adds up the inputs.

mod geometry;

use super::Blend;
use crate::Error;
use crate::number::{Arithmetic, Real};
use crate::operands::{Block, Lanes, Operands};
use crate::passes::{BLOCK, blocks, map};
use geometry::Products;

pub(crate) use geometry::Rule;

/// A rule, and what it is applied to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Combine {
    pub(crate) rule: Rule,
    /// Whether the inputs' differences to the base are combined, and the base is added.
    pub(crate) from_base: bool,
    /// Each lane has factors of its own.
    pub(crate) lanes: Lanes,
}

impl Combine {
    pub(super) fn prepare<A: Arithmetic>(&self, operands: &Operands) -> Result<Ready<A>, Error> {
        let products = match self.lanes.stretch() >= operands.elements && self.lanes.stride == 1 {
            true => vec![self.whole::<A>(operands)?],
            false => self.by_lane::<A>(operands)?,
        };
        let count = self.count(operands);
        let mut factors = Vec::with_capacity(products.len() * count);
        for products in &products {
            let products = Products { count, products };
            let found = self
                .rule
                .factors(&products)
                .map_err(|reason| Error::Tensor {
                    name: operands.name.clone(),
                    reason: reason.into(),
                })?;
            factors.extend(found.into_iter().map(A::Real::of));
        }
        Ok(Ready {
            from_base: self.from_base,
            lanes: self.lanes,
            count,
            factors,
        })
    }

    fn count(&self, operands: &Operands) -> usize {
        operands.inputs.len() - usize::from(self.from_base)
    }

    /// The inner products of all elements.
    fn whole<A: Arithmetic>(&self, operands: &Operands) -> Result<Vec<f64>, Error> {
        let pairs = self.count(operands) * self.count(operands);
        let parts = map(
            operands.threads,
            blocks(operands.elements),
            Block::<A>::new,
            |block, elements| {
                let mut products = vec![0.0; pairs];
                let inputs = block.load(operands, elements)?;
                self.add::<A>(&self.vectors::<A>(inputs), &mut products);
                Ok(products)
            },
        )?;
        let mut total = vec![0.0; pairs];
        for part in parts {
            for (total, part) in total.iter_mut().zip(part) {
                *total += part;
            }
        }
        Ok(total)
    }

    /// The inner products of each lane.
    fn by_lane<A: Arithmetic>(&self, operands: &Operands) -> Result<Vec<Vec<f64>>, Error> {
        let count = self.count(operands);
        let lanes = self.lanes;
        let groups = lanes.groups(operands.elements, BLOCK);
        let parts = map(
            operands.threads,
            groups,
            Block::<A>::new,
            |block, elements| {
                let inputs = block.load(operands, elements.clone())?;
                let vectors = self.vectors::<A>(inputs);
                let mut products = Vec::with_capacity(lanes.count(elements.len()));
                for start in (0..elements.len()).step_by(lanes.stretch()) {
                    for lane in start..start + lanes.stride {
                        let line = |vector: &Vec<f64>| -> Vec<f64> {
                            vector[lane..]
                                .iter()
                                .step_by(lanes.stride)
                                .take(lanes.len)
                                .copied()
                                .collect()
                        };
                        let lines: Vec<Vec<f64>> = vectors.iter().map(line).collect();
                        let mut of = vec![0.0; count * count];
                        self.add::<A>(&lines, &mut of);
                        products.push(of);
                    }
                }
                Ok(products)
            },
        )?;
        Ok(parts.concat())
    }

    fn vectors<A: Arithmetic>(&self, inputs: &[Vec<A::Real>]) -> Vec<Vec<f64>> {
        let (base, inputs) = match self.from_base {
            true => (Some(&inputs[0]), &inputs[1..]),
            false => (None, inputs),
        };
        let vector = |input: &Vec<A::Real>| match base {
            Some(base) => input
                .iter()
                .zip(base)
                .map(|(value, base)| value.f64() - base.f64())
                .collect(),
            None => input.iter().map(|value| value.f64()).collect(),
        };
        inputs.iter().map(vector).collect()
    }

    fn add<A: Arithmetic>(&self, vectors: &[Vec<f64>], products: &mut [f64]) {
        let count = vectors.len();
        for (i, left) in vectors.iter().enumerate() {
            for (j, right) in vectors.iter().enumerate().skip(i) {
                let product = dot(left, right);
                products[i * count + j] += product;
                if i != j {
                    products[j * count + i] += product;
                }
            }
        }
    }
}

/// The inner product, in eight sums that are added at the end: the order never changes.
fn dot(left: &[f64], right: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (left, left_rest) = left.as_chunks::<8>();
    let (right, right_rest) = right.as_chunks::<8>();
    for (left, right) in left.iter().zip(right) {
        for (sum, (left, right)) in sums.iter_mut().zip(left.iter().zip(right)) {
            *sum += left * right;
        }
    }
    let rest: f64 = left_rest
        .iter()
        .zip(right_rest)
        .map(|(left, right)| left * right)
        .sum();
    sums.iter().sum::<f64>() + rest
}

/// A combination with its factors.
pub(super) struct Ready<A: Arithmetic> {
    from_base: bool,
    lanes: Lanes,
    count: usize,
    /// Those of the first lane, then those of the next.
    factors: Vec<A::Real>,
}

impl<A: Arithmetic> Blend<A> for Ready<A> {
    fn blend(&self, first: usize, inputs: &[Vec<A::Real>], out: &mut [A::Real]) {
        let is_whole = self.factors.len() == self.count;
        let (base, inputs) = match self.from_base {
            true => (Some(&inputs[0]), &inputs[1..]),
            false => (None, inputs),
        };
        out.fill(A::Real::default());
        for (index, input) in inputs.iter().enumerate() {
            for (at, (sum, value)) in out.iter_mut().zip(input).enumerate() {
                let lane = if is_whole {
                    0
                } else {
                    self.lanes.of(first + at)
                };
                let factor = self.factors[lane * self.count + index];
                let value = match base {
                    Some(base) => *value - base[at],
                    None => *value,
                };
                *sum = *sum + factor * value;
            }
        }
        for (at, sum) in out.iter_mut().enumerate() {
            *sum = A::round(match base {
                Some(base) => *sum + base[at],
                None => *sum,
            });
        }
    }
}
