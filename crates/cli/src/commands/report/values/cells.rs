//! Statistics put together by kind and layer, as they come.

use super::Kind;
use crate::commands::inspect::Map;
use crate::error::Error;
use cairn::checkpoint::name_family;
use cairn::checkpoint::statistics::Statistics;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// The bars of a histogram.
const BINS: usize = 40;

/// The values of a kind in one layer.
#[derive(Debug, Serialize)]
pub(super) struct Layer {
    /// Its number; none if there are no layers.
    pub(super) layer: Option<u64>,
    pub(super) count: usize,
    pub(super) elements: u64,
    pub(super) nan: u64,
    pub(super) infinite: u64,
    pub(super) sparsity: Option<f64>,
    pub(super) mean: Option<f64>,
    pub(super) std: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) absmax: Option<f64>,
    /// Elements in equal stretches from `min` to `max`.
    pub(super) histogram: Vec<f64>,
}

/// Kinds in the order their first tensors came.
#[derive(Debug, Default)]
pub(super) struct Cells {
    kinds: Vec<Kind>,
    places: HashMap<String, usize>,
    /// What the tensors at hand have in common: the name up to the number of the layer.
    group: String,
    /// Of each kind what is known of the layer at hand.
    open: BTreeMap<usize, (usize, Statistics)>,
}

impl Cells {
    /// Makes room for the kind of a tensor; `map` is called for the first of each kind.
    pub(super) fn announce(
        &mut self,
        name: &str,
        map: impl Fn(&str) -> Result<Option<Map>, Error>,
    ) -> Result<(), Error> {
        let kind = name_family(name);
        if !self.places.contains_key(&kind) {
            self.places.insert(kind.clone(), self.kinds.len());
            let (layers, map) = (Vec::new(), map(name)?);
            self.kinds.push(Kind { kind, layers, map });
        }
        Ok(())
    }

    /// Takes account of a tensor; tensors of one layer come one after the other.
    pub(super) fn add(&mut self, name: &str, statistics: &Statistics) {
        let group = group(name);
        if group != self.group {
            self.close();
            self.group = group.to_string();
        }
        if let Some(&place) = self.places.get(&name_family(name)) {
            let (count, open) = self.open.entry(place).or_default();
            *count += 1;
            open.append(statistics);
        }
    }

    pub(super) fn finish(mut self) -> Vec<Kind> {
        self.close();
        self.kinds
    }

    /// Histograms are large, so that those of a layer become bars before the next one begins.
    fn close(&mut self) {
        let layer = self
            .group
            .rsplit('.')
            .next()
            .and_then(|part| part.parse().ok());
        for (place, (count, statistics)) in std::mem::take(&mut self.open) {
            let layer = Layer::new(layer, count, &statistics);
            self.kinds[place].layers.push(layer);
        }
    }
}

/// The name up to its first number, with it; all of a name without one.
fn group(name: &str) -> &str {
    let mut end = 0;
    for part in name.split('.') {
        end += part.len();
        if part.parse::<u64>().is_ok() {
            return &name[..end];
        }
        end += 1;
    }
    name
}

impl Layer {
    fn new(layer: Option<u64>, count: usize, statistics: &Statistics) -> Self {
        let summary = &statistics.summary;
        let range = summary.min().zip(summary.max());
        let bins = |(low, high)| statistics.histogram.bins(low, high, BINS);
        // Shares of elements are of no interest, and long to write.
        let whole = |count: f64| count.round();
        Self {
            layer,
            count,
            elements: summary.elements,
            nan: summary.nan,
            infinite: summary.infinite,
            sparsity: summary.sparsity(),
            mean: summary.mean(),
            std: summary.std(),
            min: summary.min(),
            max: summary.max(),
            absmax: summary.absmax(),
            histogram: range.map_or(Vec::new(), |range| {
                bins(range).into_iter().map(whole).collect()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn::tensor::{DType, Summary};

    #[test]
    fn a_group_ends_with_the_first_number() {
        assert_eq!(group("model.layers.10.mlp.experts.3.w"), "model.layers.10");
        assert_eq!(group("0.w"), "0");
        assert_eq!(group("model.norm.weight"), "model.norm.weight");
        assert_eq!(group(""), "");
    }

    #[test]
    fn experts_of_a_layer_are_one_and_layers_are_not() {
        let mut cells = Cells::default();
        let names = [
            "h.0.e.0.w",
            "h.0.e.1.w",
            "h.0.n",
            "h.1.e.0.w",
            "h.1.e.1.w",
            "norm",
        ];
        for name in names {
            cells.announce(name, |_| Ok(None)).unwrap();
        }
        for (value, name) in names.iter().enumerate() {
            let summary = Summary::of(DType::U8, &[u8::try_from(value).unwrap()]).unwrap();
            let statistics = Statistics {
                summary,
                ..Statistics::default()
            };
            cells.add(name, &statistics);
        }
        let kinds = cells.finish();
        let of = |kind: usize| -> Vec<(Option<u64>, usize, Option<f64>)> {
            let layers = kinds[kind].layers.iter();
            layers
                .map(|layer| (layer.layer, layer.count, layer.max))
                .collect()
        };
        assert_eq!(kinds[0].kind, "h.#.e.#.w");
        assert_eq!(of(0), [(Some(0), 2, Some(1.0)), (Some(1), 2, Some(4.0))]);
        assert_eq!(of(1), [(Some(0), 1, Some(2.0))]);
        assert_eq!(of(2), [(None, 1, Some(5.0))]);
    }
}
