//! An error as a text of several lines: every stage of the statement, and a mark under what is wrong.

use super::{Error, Frame};
use std::fmt::Write;

impl Error {
    /// The stages of the statement, the last with a mark under what is wrong; empty if no statement is at fault.
    ///
    /// ```text
    /// statement 2      a, b -> c, axis=4
    /// after `*`        a.0, a.1, b -> c, axis=4
    ///                                    ^^^^^^
    /// ```
    pub fn trace(&self) -> String {
        let width = self.frames.iter().map(|frame| frame.by.chars().count());
        let width = width.max().unwrap_or(0) + 2;
        let mut text = String::new();
        for (index, frame) in self.frames.iter().enumerate() {
            let last = index + 1 == self.frames.len();
            show(&mut text, frame, width, last);
        }
        text
    }
}

/// The most characters of a stage that are shown, around what is marked.
const MAX_SHOWN: usize = 400;

fn show(out: &mut String, frame: &Frame, width: usize, last: bool) {
    // A text of a few lines has its marks under one: spaces for line ends keep it in one.
    let line: String = frame.text.replace(['\n', '\r', '\t'], " ");
    let span = frame.span.as_ref().filter(|_| last);
    let chars = |range: std::ops::Range<usize>, default: usize| {
        line.get(range).map_or(default, |text| text.chars().count())
    };
    let before = span.map_or(0, |span| chars(0..span.start, 0));
    let marked = span.map_or(0, |span| chars(span.clone(), 1).max(1));
    // A stage may be as long as a file; of a long one the part with the mark is shown.
    let total = line.chars().count();
    let skipped = match total > MAX_SHOWN {
        true => before.saturating_sub(MAX_SHOWN / 4),
        false => 0,
    };
    let mut shown: String = line.chars().skip(skipped).take(MAX_SHOWN).collect();
    if skipped > 0 {
        shown.insert(0, '…');
    }
    if skipped + MAX_SHOWN < total {
        shown.push('…');
    }
    let by = " ".repeat(width.saturating_sub(frame.by.chars().count()));
    // Writing to a text does not fail.
    let _ = writeln!(out, "{}{by}{shown}", frame.by);
    if span.is_some() {
        let before = before - skipped + usize::from(skipped > 0);
        let marked = marked.min(MAX_SHOWN.saturating_sub(before).max(1));
        let _ = writeln!(out, "{}{}", " ".repeat(width + before), "^".repeat(marked));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Program, Tensors};

    #[test]
    fn a_statement_as_long_as_a_file_is_shown_where_it_is_wrong() {
        for len in [70_000, 200_000] {
            for text in [
                format!("a, {} -> c, axis=4", "b".repeat(len)),
                format!("{} -> c, axis=4", "b".repeat(len)),
                format!("a -> b, axis={}", "9".repeat(len)),
            ] {
                let compiled = Program::parse(&text)
                    .and_then(|program| program.compile(&Tensors::new(), None));
                let trace = compiled.unwrap_err().trace();
                assert!(trace.len() < 4096, "{}", trace.len());
            }
        }
    }
}
