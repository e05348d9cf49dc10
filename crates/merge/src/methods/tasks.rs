//! Task arithmetic: what models changed in a base model, thinned out, and put together by sum or by vote.

use super::Blend;
use super::keep::{Kept, Rescale, Rise, Thinning, keep};
use crate::Error;
use crate::number::{Arithmetic, Real};
use crate::operands::{Block, Lanes, Operands};
use crate::passes::{blocks, map};
use crate::vectors::vectorized;

/// Elements that are put together at once: few enough that what is worked out of them stays in the fastest cache.
const STRIP: usize = 1024;

/// Below this, a sum of magnitudes is not divided by.
const SMALLEST_SUM: f64 = 1e-7;

/// Several tasks, and how their changes are put together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tasks {
    pub(crate) tasks: Vec<Task>,
    /// How models vote on the sign of a change; without a vote, all changes count.
    pub(crate) election: Option<Election>,
    pub(crate) rescale: Rescale,
    /// Whether the sum is divided by the weights that went into it.
    pub(crate) normalize: bool,
    pub(crate) lambda: f64,
}

/// What one model adds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Task {
    pub(crate) weight: f64,
    pub(crate) thinning: Thinning,
}

/// How a sign is elected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Election {
    /// By the sum of all changes.
    Sum,
    /// By the number of models on each side.
    Count,
}

impl Tasks {
    /// How often the inputs are read before the last pass.
    pub(super) fn statistics_passes(&self, select: u64) -> u64 {
        let selects = |task: &Task| {
            matches!(
                task.thinning,
                Thinning::Largest { .. } | Thinning::Middle { .. } | Thinning::Quantile { .. }
            )
        };
        let ranks = |task: &&Task| {
            matches!(
                task.thinning,
                Thinning::Ranked { .. } | Thinning::RankedWhole { .. }
            )
        };
        let selection = if self.tasks.iter().any(selects) {
            select
        } else {
            0
        };
        let ranking = self.tasks.iter().filter(ranks).count() as u64;
        let thins = |task: &Task| !matches!(task.thinning, Thinning::All | Thinning::Nothing);
        let sums = self.rescale == Rescale::Sum && self.tasks.iter().any(thins);
        selection + ranking + u64::from(sums)
    }

    /// Bytes of memory beyond blocks: for what is remembered of each element, and for ranking one tensor of `inputs`.
    pub(crate) fn memory_bytes(&self, shape: &[usize], inputs: usize, threads: usize) -> usize {
        let elements: usize = shape.iter().product();
        let remembered = |task: &Task| match task.thinning {
            Thinning::Ranked { .. } => elements / 8,
            Thinning::RankedWhole { .. } => elements * 4,
            _ => 0,
        };
        let ranking = |task: &Task| match task.thinning {
            Thinning::Ranked { .. } => {
                Rise::memory_bytes(Lanes::along(shape, 1), elements, inputs, threads)
            }
            // What is worked out is joined at the end, so it is there twice for a moment.
            Thinning::RankedWhole { .. } => {
                elements * 4 + Rise::memory_bytes(Lanes::whole(elements), elements, inputs, threads)
            }
            _ => 0,
        };
        let ranking = self.tasks.iter().map(ranking).max();
        self.tasks.iter().map(remembered).sum::<usize>() + ranking.unwrap_or(0)
    }

    pub(super) fn prepare<A: Arithmetic>(&self, operands: &Operands) -> Result<Ready<A>, Error> {
        let thinnings: Vec<Thinning> = self.tasks.iter().map(|task| task.thinning).collect();
        let kept = keep::<A>(operands, &thinnings)?;
        let factors = self.factors::<A>(operands, &kept)?;
        let weights: Vec<A::Real> = self.tasks.iter().map(|task| A::of(task.weight)).collect();
        let sum = weights.iter().fold(0.0, |sum, weight| sum + weight.f64());
        let sum = A::of(sum);
        Ok(Ready {
            has_base: operands.has_base,
            parts: kept
                .into_iter()
                .zip(factors)
                .zip(weights)
                .map(|((kept, factor), weight)| Part {
                    kept,
                    factor,
                    weight,
                })
                .collect(),
            election: self.election,
            normalize: self.normalize,
            divisor: if sum.f64().abs() < 1e-8 {
                A::of(1.0)
            } else {
                sum
            },
            lambda: (self.lambda != 1.0).then(|| A::Real::of(self.lambda)),
        })
    }

    /// By how much what stays of each task is scaled.
    fn factors<A: Arithmetic>(
        &self,
        operands: &Operands,
        kept: &[Kept],
    ) -> Result<Vec<Option<A::Real>>, Error> {
        match self.rescale {
            Rescale::No => Ok(vec![None; kept.len()]),
            Rescale::Probability => {
                let factor = |task: &Task| match task.thinning {
                    Thinning::Random { density } => Some(A::Real::of(1.0 / density)),
                    _ => None,
                };
                Ok(self.tasks.iter().map(factor).collect())
            }
            Rescale::Sum => sum_factors::<A>(operands, kept),
        }
    }
}

/// For each task the sum of its magnitudes over the sum of those that stay.
fn sum_factors<A: Arithmetic>(
    operands: &Operands,
    kept: &[Kept],
) -> Result<Vec<Option<A::Real>>, Error> {
    let thins = |kept: &Kept| !matches!(kept, Kept::All | Kept::Nothing);
    if !kept.iter().any(thins) {
        return Ok(vec![None; kept.len()]);
    }
    let state = || (Block::<A>::new(), Vec::new());
    let sums = map(
        operands.threads,
        blocks(operands.elements),
        state,
        |(block, values), elements| {
            let first = elements.start;
            let inputs = block.load(operands, elements)?;
            let mut sums = Vec::with_capacity(kept.len());
            for (task, kept) in kept.iter().enumerate() {
                sums.push(vectorized(
                    #[inline(always)]
                    || {
                        write_changes::<A>(inputs, operands.has_base, task, values);
                        let before = magnitude::<A>(values);
                        kept.apply::<A>(first, values);
                        (before, magnitude::<A>(values))
                    },
                ));
            }
            Ok(sums)
        },
    )?;
    let factor = |(task, kept): (usize, &Kept)| {
        let before: f64 = sums.iter().map(|sums| sums[task].0).sum();
        let after: f64 = sums.iter().map(|sums| sums[task].1).sum();
        let scales = thins(kept) && before >= SMALLEST_SUM && after >= SMALLEST_SUM;
        scales.then(|| A::round(A::of(before) / A::of(after)))
    };
    Ok(kept.iter().enumerate().map(factor).collect())
}

/// The sum of magnitudes, in eight sums that are added at the end: the order never changes.
#[inline(always)]
fn magnitude<A: Arithmetic>(values: &[A::Real]) -> f64 {
    let mut sums = [0.0; 8];
    let (eights, rest) = values.as_chunks::<8>();
    for eight in eights {
        for (sum, value) in sums.iter_mut().zip(eight) {
            *sum += value.f64().abs();
        }
    }
    let rest: f64 = rest.iter().map(|value| value.f64().abs()).sum();
    sums.iter().sum::<f64>() + rest
}

/// What task number `task` changed: the input, or its difference to the base, which is the first input.
#[inline(always)]
pub(super) fn changes<'a, A: Arithmetic>(
    inputs: &'a [impl AsRef<[A::Real]>],
    has_base: bool,
    task: usize,
) -> impl Iterator<Item = A::Real> + 'a {
    let input = inputs[task + usize::from(has_base)].as_ref();
    let base = inputs[0].as_ref();
    input
        .iter()
        .zip(base)
        .map(move |(value, base)| match has_base {
            true => A::round(*value - *base),
            false => *value,
        })
}

/// Writes what task number `task` changed, as [`changes`] gives it, in loops that are compiled for vectors.
#[inline(always)]
pub(super) fn write_changes<A: Arithmetic>(
    inputs: &[impl AsRef<[A::Real]>],
    has_base: bool,
    task: usize,
    values: &mut Vec<A::Real>,
) {
    values.clear();
    values.extend_from_slice(inputs[task + usize::from(has_base)].as_ref());
    if has_base {
        for (value, base) in values.iter_mut().zip(inputs[0].as_ref()) {
            *value = A::round(*value - *base);
        }
    }
}

/// Tasks with all that has to be known of the whole tensors.
pub(super) struct Ready<A: Arithmetic> {
    has_base: bool,
    parts: Vec<Part<A::Real>>,
    election: Option<Election>,
    normalize: bool,
    /// The sum of all weights.
    divisor: A::Real,
    lambda: Option<A::Real>,
}

struct Part<R> {
    kept: Kept,
    factor: Option<R>,
    weight: R,
}

impl<A: Arithmetic> Ready<A> {
    /// Writes to `values` what a task adds to each element.
    #[inline(always)]
    fn addend(&self, first: usize, inputs: &[&[A::Real]], task: usize, values: &mut Vec<A::Real>) {
        let part = &self.parts[task];
        write_changes::<A>(inputs, self.has_base, task, values);
        part.kept.apply::<A>(first, values);
        if let Some(factor) = part.factor {
            for value in &mut *values {
                *value = A::round(*value * factor);
            }
        }
        for value in values {
            *value = A::round(*value * part.weight);
        }
    }

    /// Writes the sum of the addends, divided by all weights if asked.
    #[inline(always)]
    fn sum(&self, addends: &[Vec<A::Real>], out: &mut [A::Real]) {
        out.fill(A::Real::default());
        for addend in addends {
            for (sum, value) in out.iter_mut().zip(addend) {
                *sum = *sum + *value;
            }
        }
        for sum in out {
            *sum = A::round(*sum);
            if self.normalize {
                *sum = A::round(*sum / self.divisor);
            }
        }
    }

    /// Writes the sum of the addends on the elected side, divided by their weights if asked.
    ///
    /// Signs cannot be foreseen, so nothing branches on them: each loop runs over vectors.
    #[inline(always)]
    fn elect(&self, election: Election, addends: &[Vec<A::Real>], out: &mut [A::Real]) {
        let (zero, one) = (A::Real::default(), A::of(1.0));
        let sign = |value: A::Real| {
            let positive = if value > zero { one } else { zero };
            positive - if value < zero { one } else { zero }
        };
        let mut votes = [zero; STRIP];
        for addend in addends {
            for (vote, value) in votes.iter_mut().zip(addend) {
                *vote = *vote
                    + match election {
                        Election::Sum => *value,
                        Election::Count => sign(*value),
                    };
            }
        }
        out.fill(zero);
        let mut weights = [zero; STRIP];
        for (addend, part) in addends.iter().zip(&self.parts) {
            let sums = out.iter_mut().zip(&mut weights);
            for ((sum, weight), (value, vote)) in sums.zip(addend.iter().zip(&votes)) {
                let agrees = (*vote >= zero) & (*value > zero) | (*vote < zero) & (*value < zero);
                *sum = *sum + if agrees { *value } else { zero };
                *weight = *weight + if agrees { part.weight } else { zero };
            }
        }
        for (sum, weight) in out.iter_mut().zip(weights) {
            *sum = A::round(*sum);
            if self.normalize {
                let weight = A::round(weight);
                let divisor = if weight == zero { one } else { weight };
                *sum = A::round(*sum / divisor);
            }
        }
    }
}

impl<A: Arithmetic> Ready<A> {
    /// Works out a strip of elements; `addends` is scratch, one for each task.
    #[inline(always)]
    fn strip(
        &self,
        first: usize,
        inputs: &[&[A::Real]],
        addends: &mut [Vec<A::Real>],
        out: &mut [A::Real],
    ) {
        for (task, addend) in addends.iter_mut().enumerate() {
            self.addend(first, inputs, task, addend);
        }
        match self.election {
            Some(election) => self.elect(election, addends, out),
            None => self.sum(addends, out),
        }
        if let Some(lambda) = self.lambda {
            for value in out.iter_mut() {
                *value = A::round(*value * lambda);
            }
        }
        if self.has_base {
            for (value, base) in out.iter_mut().zip(inputs[0]) {
                *value = A::round(*base + *value);
            }
        }
    }
}

impl<A: Arithmetic> Blend<A> for Ready<A> {
    fn blend(&self, first: usize, inputs: &[Vec<A::Real>], out: &mut [A::Real]) {
        let mut addends = vec![Vec::with_capacity(STRIP); self.parts.len()];
        let mut strip = Vec::with_capacity(inputs.len());
        vectorized(
            #[inline(always)]
            || {
                for (index, out) in out.chunks_mut(STRIP).enumerate() {
                    let start = index * STRIP;
                    strip.clear();
                    strip.extend(inputs.iter().map(|input| &input[start..start + out.len()]));
                    self.strip(first + start, &strip, &mut addends, out);
                }
            },
        );
    }
}
