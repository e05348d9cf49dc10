//! What the values of every layer are like, kind by kind.
//!
//! A *kind* is a tensor that every layer has, such as `model.layers.#.mlp.up_proj.weight`; experts of a layer count as one.

mod cells;

use crate::commands::inspect::Map;
use crate::commands::stats::spark;
use crate::error::Error;
use crate::names::natural;
use crate::numbers::short;
use crate::open::Opened;
use crate::printer::Printer;
use crate::table::{Paint, Style, Table, cell};
use crate::units::{count, plural};
use cairn::checkpoint::statistics::{ScanOptions, summarize};
use cairn::checkpoint::{Kept, SharedSource, Source};
use cairn::tensor::element_count;
use cells::{Cells, Layer};
use serde::Serialize;
use std::sync::Arc;

/// A map of more shards than this is no picture any more.
const MAX_SHARDS: usize = 1024;

/// All kinds of tensors of a checkpoint or model.
#[derive(Debug, Serialize)]
pub(super) struct Values {
    path: String,
    tensors: usize,
    elements: u64,
    kinds: Vec<Kind>,
}

/// A tensor that every layer has.
#[derive(Debug, Serialize)]
struct Kind {
    kind: String,
    layers: Vec<Layer>,
    /// Who holds what of the first of them, and where it is stored.
    map: Option<Map>,
}

impl Values {
    /// Reads every tensor of what was opened at `path`.
    pub(super) fn read(path: &str, opened: Opened, printer: &Printer) -> Result<Self, Error> {
        let aliases = opened.source().aliases();
        let names = opened.source().names().into_iter().map(str::to_string);
        let mut names: Vec<String> = names.filter(|name| !aliases.contains_key(name)).collect();
        names.sort_by(|one, other| natural(one).cmp(&natural(other)));
        let maps = |name: &str| Map::new(&opened, name).map(|map| map.of_at_most(MAX_SHARDS));
        let mut cells = Cells::default();
        for name in &names {
            cells.announce(name, maps)?;
        }
        let source: SharedSource = Arc::new(Kept::new(opened.into_source()));
        let total = names
            .iter()
            .filter_map(|name| len_bytes(source.as_ref(), name));
        let options = ScanOptions {
            histogram: true,
            ..ScanOptions::default()
        };
        let bar = printer.progress("read", total.sum(), options.progress.clone());
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        summarize(source.as_ref(), &wanted, &options, |name, statistics| {
            cells.add(name, &statistics);
        })?;
        drop(bar);
        let kinds = cells.finish();
        let elements = kinds.iter().flat_map(|kind| &kind.layers);
        Ok(Self {
            path: path.to_string(),
            tensors: names.len(),
            elements: elements.map(|layer| layer.elements).sum(),
            kinds,
        })
    }

    /// A line for each kind, with a strip of bars over its layers.
    pub(super) fn text(&self, paint: Paint) -> String {
        let mut table = Table::new(&[
            "KIND",
            " LAYERS",
            " STD",
            "OVER LAYERS",
            " ABSMAX",
            "OVER LAYERS",
            " NAN, INF",
        ]);
        for kind in &self.kinds {
            let broken: u64 = kind
                .layers
                .iter()
                .map(|layer| layer.nan + layer.infinite)
                .sum();
            let broken = match broken {
                0 => cell(Style::Dim, "0"),
                broken => cell(Style::Red, broken.to_string()),
            };
            let (std, std_strip) = strip(kind, |layer| layer.std);
            let (absmax, absmax_strip) = strip(kind, |layer| layer.absmax);
            table.row(vec![
                kind.kind.as_str().into(),
                kind.layers.len().to_string().into(),
                std.into(),
                std_strip.into(),
                absmax.into(),
                absmax_strip.into(),
                broken,
            ]);
        }
        let tensors = plural(self.tensors, "tensor");
        let title = format!("{tensors}, {} elements", count(self.elements));
        format!(
            "{}\n\n{}",
            paint.text(Style::Bold, &title),
            table.render(paint)
        )
    }
}

/// The range of a number over the layers of a kind, and a bar for each layer.
fn strip(kind: &Kind, of: impl Fn(&Layer) -> Option<f64>) -> (String, String) {
    let values: Vec<f64> = kind
        .layers
        .iter()
        .map(|layer| of(layer).unwrap_or(0.0))
        .collect();
    let known = || kind.layers.iter().filter_map(&of);
    let range = match (
        known().min_by(f64::total_cmp),
        known().max_by(f64::total_cmp),
    ) {
        (Some(low), Some(high)) if low < high => format!("{}–{}", short(low), short(high)),
        (Some(one), _) => short(one),
        _ => String::new(),
    };
    let bars = match values.len() {
        1 => String::new(),
        _ => spark::line(&values, crate::args::Bars::Unicode),
    };
    (range, bars)
}

fn len_bytes(source: &dyn Source, name: &str) -> Option<u64> {
    let tensor = source.find(name)?;
    let len = tensor.dtype.len_bytes(element_count(&tensor.shape)?)?;
    Some(len as u64)
}
