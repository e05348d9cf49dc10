//! Reads the entries of an index.

use super::inside;

/// An entry of an index, before it meets a dim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// `...`: every dim that no other entry is for.
    Ellipsis,
    /// `None`: a dim of one.
    New,
    /// An integer, which takes its dim away.
    At(i128),
    /// `start:stop:step`.
    Range {
        start: Option<i128>,
        stop: Option<i128>,
        step: i128,
    },
    /// `[1, 5]` or `[True, False]`.
    List(List),
}

/// A list of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum List {
    Indices(Vec<i128>),
    /// One for each element of the dim.
    Mask(Vec<bool>),
}

impl Entry {
    pub(super) fn takes_a_dim(&self) -> bool {
        !matches!(self, Entry::Ellipsis | Entry::New)
    }
}

impl List {
    /// The elements it picks of a dim of `len`.
    pub(super) fn resolve(&self, len: usize) -> Result<Vec<usize>, String> {
        match self {
            List::Indices(indices) => indices.iter().map(|index| inside(*index, len)).collect(),
            List::Mask(mask) if mask.len() != len => {
                Err(format!("a mask of {} is for a dim of {len}", mask.len()))
            }
            List::Mask(mask) => Ok((0..len).filter(|index| mask[*index]).collect()),
        }
    }
}

/// Reads all entries.
pub(super) fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = split(text)?;
    // As in Python, a comma may end the list.
    if parts.len() > 1 && parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    let entries: Vec<Entry> = parts.into_iter().map(entry).collect::<Result<_, _>>()?;
    match entries
        .iter()
        .filter(|entry| **entry == Entry::Ellipsis)
        .count()
    {
        0 | 1 => Ok(entries),
        _ => Err("it has more than one `...`".into()),
    }
}

/// Cuts at commas that are in no brackets.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1).ok_or("a bracket is not opened")?,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("a bracket is not closed".into());
    }
    parts.push(text[start..].trim());
    Ok(parts)
}

fn entry(text: &str) -> Result<Entry, String> {
    match text {
        "" => return Err("an entry is empty".into()),
        "..." | "Ellipsis" => return Ok(Entry::Ellipsis),
        "None" | "newaxis" | "np.newaxis" => return Ok(Entry::New),
        _ => {}
    }
    if let Some(inner) = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
    {
        return list(inner).map(Entry::List);
    }
    let parts: Vec<&str> = text.split(':').collect();
    let [start, stop, step] = match parts[..] {
        [index] => return integer(index).map(Entry::At),
        [start, stop] => [start, stop, ""],
        [start, stop, step] => [start, stop, step],
        _ => return Err(format!("`{text}` has too many `:`")),
    };
    Ok(Entry::Range {
        start: bound(start)?,
        stop: bound(stop)?,
        step: bound(step)?.unwrap_or(1),
    })
}

fn list(text: &str) -> Result<List, String> {
    let text = text.trim();
    let mut items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.last() == Some(&"") {
        items.pop();
    }
    let truth = |item: &&str| match *item {
        "True" | "true" => Some(true),
        "False" | "false" => Some(false),
        _ => None,
    };
    let mask: Option<Vec<bool>> = items.iter().map(truth).collect();
    match mask.filter(|mask| !mask.is_empty()) {
        Some(mask) => Ok(List::Mask(mask)),
        None => {
            let indices: Result<Vec<i128>, String> = items.into_iter().map(integer).collect();
            indices.map(List::Indices)
        }
    }
}

fn bound(text: &str) -> Result<Option<i128>, String> {
    match text.trim() {
        "" | "None" => Ok(None),
        text => integer(text).map(Some),
    }
}

fn integer(text: &str) -> Result<i128, String> {
    let number: Result<i64, _> = text.trim().parse();
    let number = number.map_err(|_| format!("`{}` is not an integer", text.trim()));
    number.map(i128::from)
}
