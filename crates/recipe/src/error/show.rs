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

fn show(out: &mut String, frame: &Frame, width: usize, last: bool) {
    // A text of a few lines has its marks under one: spaces for line ends keep it in one.
    let line: String = frame.text.replace(['\n', '\r', '\t'], " ");
    // Writing to a text does not fail.
    let _ = writeln!(out, "{:width$}{line}", frame.by);
    let Some(span) = frame.span.as_ref().filter(|_| last) else {
        return;
    };
    let before = line
        .get(..span.start)
        .map_or(0, |text| text.chars().count());
    let marked = line
        .get(span.clone())
        .map_or(1, |text| text.chars().count());
    let _ = writeln!(
        out,
        "{:>1$}",
        "^".repeat(marked.max(1)),
        width + before + marked.max(1)
    );
}
