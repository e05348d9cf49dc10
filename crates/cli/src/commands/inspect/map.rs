//! Which rank holds what of one tensor, and where it is stored.

use super::Tensor;
use super::grid::Grid;
use crate::commands::cat::find;
use crate::error::Error;
use crate::open::Opened;
use crate::table::{Paint, Style, Table};
use crate::units::{plural, ranks, size};
use cairn::sharding::{Piece, Region, TensorSpec};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::Range;

/// The most rows of a table.
const MAX_ROWS: usize = 64;
/// The longest list of ranks in a table.
const MAX_RANKS_CHARS: usize = 32;

#[derive(Debug, Serialize)]
pub(crate) struct Map {
    #[serde(flatten)]
    tensor: Tensor,
    /// The tensor it is the cast of, if it is not stored itself; then that one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    cast_of: Option<String>,
    shards: Vec<Shard>,
    stored: Vec<Stored>,
}

/// What a set of ranks holds alike.
#[derive(Debug, Serialize)]
struct Shard {
    ranks: Vec<usize>,
    pieces: Vec<Held>,
}

/// A box of the tensor, or a range of the box's elements.
#[derive(Debug, Serialize)]
struct Held {
    offset: Vec<usize>,
    extent: Vec<usize>,
    elements: Option<Range<usize>>,
}

#[derive(Debug, Serialize)]
struct Stored {
    /// The rank that wrote it; nothing for formats that know no ranks.
    rank: Option<usize>,
    #[serde(flatten)]
    piece: Held,
    file: String,
    /// From the start of the file's data.
    file_offset: u64,
    len_bytes: u64,
}

/// The stored tensor that `name` is derived from, if it is.
fn cast_of(opened: &Opened, name: &str) -> Option<String> {
    let derived = opened.checkpoint()?.manifest().layout.derived().get(name)?;
    Some(derived.of.clone())
}

impl Map {
    pub(crate) fn new(opened: &Opened, name: &str) -> Result<Self, Error> {
        let mut found = find(opened.source(), name)?;
        let cast_of = cast_of(opened, name);
        let stored_name = cast_of.as_deref().unwrap_or(name);
        if cast_of.is_some() {
            found = find(opened.source(), stored_name)?;
        }
        let whole = Region::whole(&found.shape);
        let pieces = opened.source().pieces(stored_name, &whole)?;
        let stored = pieces.iter().map(|piece| {
            let elements = piece.piece.element_count();
            Stored {
                rank: opened.checkpoint().map(|_| piece.file),
                piece: Held::new(&piece.piece),
                file: opened.file_name(piece.file),
                file_offset: piece.offset,
                len_bytes: found.dtype.len_bytes(elements).unwrap_or(0) as u64,
            }
        });
        let stored = stored.collect();
        let Some(checkpoint) = opened.checkpoint() else {
            return Ok(Self {
                tensor: Tensor::unsharded(name, found.dtype, &found.shape),
                cast_of,
                shards: Vec::new(),
                stored,
            });
        };
        let layout = &checkpoint.manifest().layout;
        let spec = match layout.find(name) {
            Some(index) => Some(layout.spec(index).clone()),
            None => layout.derived_spec(name),
        };
        let spec = spec.expect("it was just found");
        Ok(Self {
            tensor: Tensor::of_spec(name, &spec),
            cast_of,
            shards: shards(&spec),
            stored,
        })
    }

    /// The map, unless it has more parts than that.
    pub(crate) fn of_at_most(self, parts: usize) -> Option<Self> {
        (self.shards.len() <= parts && self.stored.len() <= parts).then_some(self)
    }

    pub(super) fn text(&self, paint: Paint) -> String {
        let mut text = self.title(paint);
        text.push('\n');
        let drawing = match self.grid() {
            Some(grid) => grid.draw(paint),
            None if self.shards.is_empty() => String::new(),
            None => self.shard_table(paint),
        };
        text.push_str(&drawing);
        if !drawing.is_empty() {
            text.push('\n');
        }
        text.push_str(&self.stored_table(paint));
        text
    }

    fn title(&self, paint: Paint) -> String {
        let tensor = &self.tensor;
        let mut facts = Table::facts();
        facts.fact("tensor", tensor.name.as_str());
        facts.fact(
            "type",
            format!(
                "{}{:?}, {}",
                tensor.dtype,
                tensor.shape,
                size(tensor.len_bytes)
            ),
        );
        if let Some(of) = &self.cast_of {
            facts.fact("cast of", of.as_str());
        }
        if let Some(sharding) = &tensor.sharding {
            let mesh = tensor
                .mesh
                .as_ref()
                .map_or(String::new(), |mesh| format!(" on mesh {mesh}"));
            facts.fact("sharding", format!("{sharding}{mesh}"));
        }
        let copies = self
            .shards
            .iter()
            .map(|shard| shard.ranks.len())
            .max()
            .unwrap_or(0);
        if copies > 0 {
            let shards = plural(self.shards.len(), "shard");
            let each = if self.shards.len() == 1 { "" } else { " each" };
            facts.fact(
                "held as",
                format!("{shards}, {}{each}", plural(copies, "rank")),
            );
        }
        facts.render(paint)
    }

    /// A drawing, where boxes tile one or two dims: of shards with their ranks, or of stored boxes with their numbers.
    fn grid(&self) -> Option<Grid> {
        if self.shards.is_empty() {
            return self.stored_grid();
        }
        let mut boxes = Vec::new();
        for shard in &self.shards {
            for piece in &shard.pieces {
                if piece.elements.is_some() {
                    return None;
                }
                boxes.push((&piece.offset[..], &piece.extent[..], &shard.ranks[..]));
            }
        }
        Grid::new(&self.tensor.shape, &boxes)
    }

    fn stored_grid(&self) -> Option<Grid> {
        let numbers: Vec<usize> = (0..self.stored.len()).collect();
        let pieces = self.stored.iter().map(|stored| &stored.piece);
        let boxes = pieces.zip(&numbers).map(|(piece, number)| {
            let boxed = piece.elements.is_none();
            boxed.then_some((
                &piece.offset[..],
                &piece.extent[..],
                std::slice::from_ref(number),
            ))
        });
        let boxes: Vec<_> = boxes.collect::<Option<_>>()?;
        Grid::new(&self.tensor.shape, &boxes).filter(|_| boxes.len() > 1)
    }

    fn shard_table(&self, paint: Paint) -> String {
        let mut table = Table::new(&["RANKS", "HOLD"]);
        for shard in self.shards.iter().take(MAX_ROWS) {
            for (index, piece) in shard.pieces.iter().enumerate() {
                let names = ranks(&shard.ranks, MAX_RANKS_CHARS);
                let names = if index == 0 { names } else { String::new() };
                table.row(vec![names.into(), piece.text(&self.tensor.shape).into()]);
            }
        }
        table.render(paint) + &more(self.shards.len(), paint)
    }

    fn stored_table(&self, paint: Paint) -> String {
        let ranked = self.stored.iter().any(|stored| stored.rank.is_some());
        let mut header = vec!["STORED", "FILE", " OFFSET", " SIZE"];
        let numbered = !ranked && self.stored.len() > 1;
        if ranked || numbered {
            header.insert(0, if ranked { " RANK" } else { " BOX" });
        }
        let mut table = Table::new(&header);
        for (number, stored) in self.stored.iter().enumerate().take(MAX_ROWS) {
            let first = stored.rank.or(numbered.then_some(number));
            let rank = first.map(|rank| rank.to_string().into());
            let piece = stored.piece.text(&self.tensor.shape).into();
            let file = stored.file.as_str().into();
            let offset = stored.file_offset.to_string().into();
            let row = rank
                .into_iter()
                .chain([piece, file, offset, size(stored.len_bytes).into()]);
            table.row(row.collect());
        }
        table.render(paint) + &more(self.stored.len(), paint)
    }
}

fn more(rows: usize, paint: Paint) -> String {
    match rows.checked_sub(MAX_ROWS) {
        None | Some(0) => String::new(),
        Some(more) => paint.text(
            Style::Dim,
            &format!("… and {more} more; `--json` lists all\n"),
        ),
    }
}

/// The distinct shards of a tensor and who holds each, in order of their first rank.
fn shards(spec: &TensorSpec) -> Vec<Shard> {
    let cells = spec.cells_overlapping(&Region::whole(spec.shape()));
    let shard = |rank| Shard {
        ranks: spec.replica_ranks(rank),
        pieces: spec.pieces(rank).iter().map(Held::new).collect(),
    };
    let leaders: BTreeSet<usize> = cells.into_iter().map(|cell| cell.rank).collect();
    leaders.into_iter().map(shard).collect()
}

impl Held {
    fn new(piece: &Piece) -> Self {
        Self {
            offset: piece.region.offset.clone(),
            extent: piece.region.extent.clone(),
            elements: piece.flat.clone(),
        }
    }

    /// As a slice: `[0:2048, :]`, with a range of its elements if it is flat.
    fn text(&self, shape: &[usize]) -> String {
        let dims = self.offset.iter().zip(&self.extent).zip(shape);
        let dims = dims.map(|((&offset, &extent), &len)| match (offset, extent) {
            (0, extent) if extent == len => ":".to_string(),
            _ => format!("{offset}:{}", offset.saturating_add(extent)),
        });
        let slice = format!("[{}]", dims.collect::<Vec<_>>().join(", "));
        match &self.elements {
            None => slice,
            Some(range) => format!("{slice} elements {}:{}", range.start, range.end),
        }
    }
}
