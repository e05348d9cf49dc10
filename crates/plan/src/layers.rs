//! Which layers of a model each part of a pipeline has.

#[cfg(test)]
mod tests;

use crate::Error;
use std::ops::Range;

/// The most layers that are split.
pub const MAX_LAYERS: usize = 1024;

/// What the layers of a model cost, in any unit.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerCosts {
    /// Each layer.
    pub layers: Vec<f64>,
    /// What comes before the first layer, on the part that has it: the embedding.
    pub embedding: f64,
    /// What comes after the last layer, on the part that has it: the head and the loss.
    pub head: f64,
}

impl LayerCosts {
    /// Layers that are all alike, and nothing else.
    ///
    /// # Errors
    /// If there are more than [`MAX_LAYERS`].
    pub fn equal(layers: usize) -> Result<Self, Error> {
        check_count(layers)?;
        Ok(Self {
            layers: vec![1.0; layers],
            embedding: 0.0,
            head: 0.0,
        })
    }

    /// The cost of a part that has these layers, if it is one of `parts`.
    pub fn of_part(&self, part: usize, parts: usize, layers: Range<usize>) -> f64 {
        let embedding = if part == 0 { self.embedding } else { 0.0 };
        let head = if part + 1 == parts { self.head } else { 0.0 };
        embedding + self.layers[layers].iter().sum::<f64>() + head
    }

    fn check(&self) -> Result<(), Error> {
        let ends = [("the embedding", self.embedding), ("the head", self.head)];
        let ends = ends.map(|(what, cost)| (what.to_string(), cost));
        let layers = self.layers.iter().enumerate();
        let layers = layers.map(|(layer, cost)| (format!("layer {layer}"), *cost));
        match layers
            .chain(ends)
            .find(|(_, cost)| !cost.is_finite() || *cost < 0.0)
        {
            None => Ok(()),
            Some((what, cost)) => Err(Error::Cost { what, cost }),
        }
    }
}

/// Splits layers into consecutive parts such that the most expensive part costs as little as possible, and the others are as equal as that allows.
///
/// Every part has a layer. Only the first may have nothing but the embedding, and the last nothing but the head, if these cost anything.
///
/// # Errors
/// If there are more parts than there is something to put into, or a cost is negative or not a number.
pub fn split_layers(costs: &LayerCosts, parts: usize) -> Result<Vec<Range<usize>>, Error> {
    let layers = costs.layers.len();
    check_count(layers)?;
    costs.check()?;
    let refuse = |reason: &str| {
        Err(Error::Split {
            layers,
            parts,
            reason: reason.to_string(),
        })
    };
    if parts == 0 {
        return refuse("there must be a part");
    }
    if parts > layers + 2 {
        return refuse("there would be parts without a layer");
    }
    let splitter = Splitter::new(costs, parts);
    let cut = splitter
        .best(f64::INFINITY, f64::max)
        .and_then(|(largest, _)| splitter.best(largest, |sum, part| sum + part * part));
    match cut {
        Some((_, cut)) => Ok(cut),
        None => refuse("there would be parts without a layer"),
    }
}

fn check_count(layers: usize) -> Result<(), Error> {
    match layers <= MAX_LAYERS {
        true => Ok(()),
        false => Err(Error::TooManyLayers {
            layers,
            limit: MAX_LAYERS,
        }),
    }
}

/// Parts of as many layers as the caller says.
///
/// # Errors
/// If that is not all layers, or more than there are.
pub fn explicit_split(layers: usize, counts: &[usize]) -> Result<Vec<Range<usize>>, Error> {
    let sum = counts
        .iter()
        .try_fold(0_usize, |sum, count| sum.checked_add(*count));
    if sum != Some(layers) || counts.is_empty() {
        let sum = sum.map_or("too many".to_string(), |sum| sum.to_string());
        return Err(Error::Split {
            layers,
            parts: counts.len(),
            reason: format!("the parts have {sum} layers"),
        });
    }
    let mut end = 0;
    let range = |count: &usize| {
        let start = end;
        end += count;
        start..end
    };
    Ok(counts.iter().map(range).collect())
}

/// Finds the best of all splits, part by part.
struct Splitter<'a> {
    costs: &'a LayerCosts,
    parts: usize,
    /// The cost of all layers before each.
    before: Vec<f64>,
}

impl<'a> Splitter<'a> {
    fn new(costs: &'a LayerCosts, parts: usize) -> Self {
        let mut before = vec![0.0];
        for cost in &costs.layers {
            before.push(before[before.len() - 1] + cost);
        }
        Self {
            costs,
            parts,
            before,
        }
    }

    /// The split with the smallest total, as `add` adds parts up, of those whose parts cost at most `limit`.
    fn best(&self, limit: f64, add: impl Fn(f64, f64) -> f64) -> Option<(f64, Vec<Range<usize>>)> {
        let layers = self.costs.layers.len();
        // For each number of layers: the best total of the parts so far, and where the last of them begins.
        let mut totals: Vec<Option<f64>> = vec![None; layers + 1];
        totals[0] = Some(0.0);
        let mut begins: Vec<Vec<usize>> = Vec::new();
        for part in 0..self.parts {
            let ends = (0..=layers).map(|end| {
                let begins = (0..=end)
                    .rev()
                    .take_while(|begin| self.cost(part, *begin..end) <= limit);
                let fit = begins.filter(|begin| self.may_hold(part, *begin..end));
                let found = fit.filter_map(|begin| {
                    let total = add(totals[begin]?, self.cost(part, begin..end));
                    Some((total, begin))
                });
                // Of equals, the one with more layers at the end, where fewer activations are kept.
                found.min_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)))
            });
            let ends: Vec<Option<(f64, usize)>> = ends.collect();
            begins.push(
                ends.iter()
                    .map(|end| end.map_or(0, |(_, begin)| begin))
                    .collect(),
            );
            totals = ends
                .into_iter()
                .map(|end| end.map(|(total, _)| total))
                .collect();
        }
        let total = totals[layers]?;
        let mut end = layers;
        let mut split: Vec<Range<usize>> = begins
            .iter()
            .rev()
            .map(|begins| {
                let range = begins[end]..end;
                end = range.start;
                range
            })
            .collect();
        split.reverse();
        Some((total, split))
    }

    fn may_hold(&self, part: usize, layers: Range<usize>) -> bool {
        let first = part == 0 && self.costs.embedding > 0.0;
        let last = part + 1 == self.parts && self.costs.head > 0.0;
        !layers.is_empty() || first || last
    }

    fn cost(&self, part: usize, layers: Range<usize>) -> f64 {
        let ends = self.costs.of_part(part, self.parts, 0..0);
        ends + (self.before[layers.end] - self.before[layers.start])
    }
}
