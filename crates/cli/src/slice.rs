//! Indices as NumPy writes them: `name[0:2, ::-1, ..., None, [1, 5], -1]`.

mod parse;
#[cfg(test)]
mod tests;

use crate::error::Error;
use parse::Entry;

/// The elements of one dim of a tensor that an index picks, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Picked {
    /// Indices at equal distances.
    Range {
        /// The first index.
        first: usize,
        /// From one index to the next; negative if they descend.
        step: i128,
        /// How many there are.
        count: usize,
    },
    /// Indices in any order.
    List(Vec<usize>),
}

/// A dim of what was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dim {
    /// That of the tensor, as far as it was picked.
    Of(usize),
    /// One that `None` put there.
    New,
    /// The one along which all lists advance together.
    Points,
}

/// What an index picks of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    /// For each dim of the tensor.
    pub(crate) picked: Vec<Picked>,
    /// For each dim of the result.
    pub(crate) dims: Vec<Dim>,
    /// How many points lists pick together.
    points: usize,
}

/// Splits `name[index]` in its two parts.
pub(crate) fn split(text: &str) -> (&str, Option<&str>) {
    if !text.ends_with(']') {
        return (text, None);
    }
    let mut depth = 0_usize;
    let open = text.char_indices().rev().find(|(_, character)| {
        depth += usize::from(*character == ']');
        depth = depth.saturating_sub(usize::from(*character == '['));
        depth == 0
    });
    match open {
        Some((at, '[')) if at > 0 => (&text[..at], Some(&text[at + 1..text.len() - 1])),
        _ => (text, None),
    }
}

impl Selection {
    /// What `index` picks of a tensor of this shape; everything if there is none.
    ///
    /// # Errors
    /// If it cannot be read, has more entries than the tensor has dims, or reaches outside.
    pub(crate) fn new(index: Option<&str>, shape: &[usize]) -> Result<Self, Error> {
        let text = index.unwrap_or_default();
        let resolved = parse::entries(text).and_then(|entries| Self::resolve(entries, shape));
        resolved.map_err(|reason| Error::Slice {
            slice: text.to_string(),
            shape: shape.to_vec(),
            reason,
        })
    }

    fn resolve(mut entries: Vec<Entry>, shape: &[usize]) -> Result<Self, String> {
        let named = entries.iter().filter(|entry| entry.takes_a_dim()).count();
        let Some(rest) = shape.len().checked_sub(named) else {
            return Err(format!("it has {named} entries"));
        };
        if !entries.contains(&Entry::Ellipsis) {
            entries.push(Entry::Ellipsis);
        }
        let listed = |entry: &Entry| matches!(entry, Entry::List(_));
        let has_lists = entries.iter().any(listed);
        let mut selection = Self {
            picked: Vec::with_capacity(shape.len()),
            dims: Vec::new(),
            points: 1,
        };
        // Where the points stand: in place of the lists if those, and integers, lie side by side, else in front.
        let mut place: Option<usize> = None;
        let mut apart = false;
        let mut before = false;
        for entry in entries {
            let together = has_lists && matches!(entry, Entry::List(_) | Entry::At(_));
            apart |= together && place.is_some() && !before;
            if together {
                place.get_or_insert(selection.dims.len());
            }
            before = together;
            selection.add(entry, shape, rest)?;
        }
        if let Some(place) = place {
            let place = if apart { 0 } else { place };
            selection.dims.insert(place, Dim::Points);
        }
        Ok(selection)
    }

    /// Adds what an entry picks of the next dim, or of the next `rest` dims.
    fn add(&mut self, entry: Entry, shape: &[usize], rest: usize) -> Result<(), String> {
        let dim = self.picked.len();
        match entry {
            Entry::Ellipsis => {
                for (dim, len) in shape.iter().enumerate().skip(dim).take(rest) {
                    self.picked.push(Picked::all(*len));
                    self.dims.push(Dim::Of(dim));
                }
            }
            Entry::New => self.dims.push(Dim::New),
            Entry::At(index) => {
                let first = inside(index, shape[dim])?;
                self.picked.push(Picked::Range {
                    first,
                    step: 1,
                    count: 1,
                });
            }
            Entry::Range { start, stop, step } => {
                self.picked.push(range(start, stop, step, shape[dim])?);
                self.dims.push(Dim::Of(dim));
            }
            Entry::List(list) => {
                let list = list.resolve(shape[dim])?;
                match (self.points, list.len()) {
                    (1, count) => self.points = count,
                    (points, count) if count == 1 || count == points => {}
                    (points, count) => {
                        return Err(format!("lists of {points} and {count} do not go together"));
                    }
                }
                self.picked.push(Picked::List(list));
            }
        }
        Ok(())
    }

    /// The shape of what was picked.
    pub(crate) fn shape(&self) -> Vec<usize> {
        let len = |dim: &Dim| match *dim {
            Dim::Of(dim) => self.picked[dim].count(),
            Dim::New => 1,
            Dim::Points => self.points,
        };
        self.dims.iter().map(len).collect()
    }

    /// The element of the tensor that stands at `place` of what was picked.
    pub(crate) fn source(&self, place: &[usize], index: &mut Vec<usize>) {
        let mut points = 0;
        index.clear();
        index.extend(self.picked.iter().map(|picked| picked.index(0)));
        for (dim, &nth) in self.dims.iter().zip(place) {
            match *dim {
                Dim::Of(dim) => index[dim] = self.picked[dim].index(nth),
                Dim::New => {}
                Dim::Points => points = nth,
            }
        }
        for (index, picked) in index.iter_mut().zip(&self.picked) {
            if let Picked::List(list) = picked {
                *index = list[points.min(list.len().saturating_sub(1))];
            }
        }
    }

    /// Which dim of the result the picks of a dim of the tensor lie along; none if there is one pick for all.
    pub(crate) fn along(&self, dim: usize) -> Option<usize> {
        let lies = |result: &Dim| match (result, &self.picked[dim]) {
            (Dim::Of(of), _) => *of == dim,
            (Dim::Points, Picked::List(list)) => list.len() == self.points,
            _ => false,
        };
        self.dims.iter().position(lies)
    }
}

impl Picked {
    fn all(len: usize) -> Self {
        Self::Range {
            first: 0,
            step: 1,
            count: len,
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Range { count, .. } => *count,
            Self::List(list) => list.len(),
        }
    }

    /// The index at place `nth`, which is below `count`; 0 of nothing.
    pub(crate) fn index(&self, nth: usize) -> usize {
        match self {
            Self::Range { first, step, .. } => {
                let index = *first as i128 + nth as i128 * step;
                usize::try_from(index).expect("picked inside the dim")
            }
            Self::List(list) => list.get(nth).copied().unwrap_or(0),
        }
    }
}

/// The place of an index that may count from the end.
fn inside(index: i128, len: usize) -> Result<usize, String> {
    let place = usize::try_from(from_end(index, len)).ok();
    let place = place.filter(|place| *place < len);
    place.ok_or_else(|| format!("index {index} is outside a dim of {len}"))
}

/// The indices of `start:stop:step`, clamped to the dim as Python does.
fn range(
    start: Option<i128>,
    stop: Option<i128>,
    step: i128,
    len: usize,
) -> Result<Picked, String> {
    if step == 0 {
        return Err("the step is 0".into());
    }
    let last = len as i128;
    // Going down, the places before the first and after the last index are -1 and len - 1.
    let (low, high) = if step > 0 { (0, last) } else { (-1, last - 1) };
    let place = |at: i128| from_end(at, len).clamp(low, high);
    let start = start.map_or(if step > 0 { low } else { high }, place);
    let stop = stop.map_or(if step > 0 { high } else { low }, place);
    let distance = if step > 0 { stop - start } else { start - stop };
    let count = (distance.max(0) + step.abs() - 1) / step.abs();
    Ok(Picked::Range {
        first: usize::try_from(start).unwrap_or(0),
        step,
        count: usize::try_from(count).expect("no more than the dim has"),
    })
}

fn from_end(index: i128, len: usize) -> i128 {
    if index < 0 {
        index + len as i128
    } else {
        index
    }
}
