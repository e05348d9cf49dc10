//! How a mesh prints and parses: `dp=2,tp=4`, `dp=2,tp=2 on 4..8`, `tp=3 on [0,2,5]`, `single`.

use std::{fmt, str::FromStr};

use super::{MAX_RANKS, Mesh, Ranks, limit};
use crate::Error;

const SINGLE: &str = "single";

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.axes().is_empty() {
            f.write_str(SINGLE)?;
        }
        for (index, axis) in self.axes().iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}={}", axis.name, axis.size)?;
        }
        match &self.0.ranks {
            Ranks::Consecutive(ranks) if ranks.start == 0 => Ok(()),
            Ranks::Consecutive(ranks) => write!(f, " on {}..{}", ranks.start, ranks.end),
            Ranks::Listed { ranks, .. } => {
                let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
                write!(f, " on [{}]", ranks.join(","))
            }
        }
    }
}

impl FromStr for Mesh {
    type Err = Error;

    fn from_str(text: &str) -> Result<Mesh, Error> {
        let (axes, ranks) = match text.split_once(" on ") {
            Some((axes, ranks)) => (axes, Some(ranks)),
            None => (text, None),
        };
        let axes = parse_axes(axes.trim()).ok_or_else(|| syntax(text))?;
        match ranks {
            None => Mesh::new(axes),
            Some(ranks) => Mesh::with_ranks(axes, parse_ranks(ranks.trim(), text)?),
        }
    }
}

fn parse_axes(text: &str) -> Option<Vec<(&str, usize)>> {
    if text == SINGLE {
        return Some(Vec::new());
    }
    text.split(',')
        .map(|part| {
            let (name, size) = part.split_once('=')?;
            Some((name.trim(), size.trim().parse().ok()?))
        })
        .collect()
}

fn parse_ranks(text: &str, mesh: &str) -> Result<Vec<usize>, Error> {
    let number =
        |text: &str| -> Result<usize, Error> { text.trim().parse().map_err(|_| syntax(mesh)) };
    if let Some((first, end)) = text.split_once("..") {
        let (first, end) = (number(first)?, number(end)?);
        limit("ranks", end, MAX_RANKS)?;
        return Ok((first..end).collect());
    }
    let list = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    list.ok_or_else(|| syntax(mesh))?
        .split(',')
        .map(number)
        .collect()
}

fn syntax(text: &str) -> Error {
    Error::Syntax {
        what: "mesh",
        text: text.to_owned(),
        expected: "`axis=size,…` or `single`, then perhaps ` on first..end` or ` on [rank,…]`",
    }
}
