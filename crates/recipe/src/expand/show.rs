//! Statements as text, for messages.

use super::{Expanded, Variable};
use crate::error::Frame;
use crate::statement::Statement;
use std::ops::Range;

/// The most of a statement that a message shows.
const MAX_SHOWN: usize = 400;

/// Which part of a statement is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Left(usize),
    Right(usize),
    Attribute(usize),
}

impl Statement {
    /// The statement as written.
    pub(crate) fn frame(&self, index: usize, part: Part) -> Frame {
        let span = match part {
            Part::Whole => None,
            Part::Left(at) => self.left.get(at).map(|name| name.span.clone()),
            Part::Right(at) => self.right.get(at).map(|name| name.span.clone()),
            Part::Attribute(at) => self.attributes.get(at).map(|found| found.span.clone()),
        };
        Frame {
            by: format!("statement {}", index + 1),
            span: span.or(Some(0..self.text.len())),
            text: self.text.clone(),
        }
    }
}

impl Expanded {
    /// The statement as written and, if that is another, written out.
    pub(crate) fn frames(&self, statement: &Statement, part: Part) -> Vec<Frame> {
        let mut frames = vec![statement.frame(self.statement, Part::Whole)];
        let written = (&statement.left, &statement.right);
        let counts = (self.left.len(), self.right.len());
        if self.ids.is_empty() && counts == (written.0.len(), written.1.len()) {
            return vec![statement.frame(self.statement, part)];
        }
        let ids = self.ids.iter().map(|(name, id)| format!("{name} = {id}"));
        let ids: Vec<String> = ids.collect();
        let by = if ids.is_empty() {
            "written out".to_owned()
        } else {
            ids.join(", ")
        };
        let (text, span) = self.text(statement, part);
        frames.push(Frame { by, text, span });
        frames
    }

    fn text(&self, statement: &Statement, part: Part) -> (String, Option<Range<usize>>) {
        let mut text = String::new();
        let mut found = None;
        let mut add = |piece: &str, joint: &str, here: Part| {
            text.push_str(joint);
            let start = text.len();
            text.push_str(piece);
            if here == part {
                found = Some(start..text.len());
            }
        };
        for (index, variable) in self.left.iter().enumerate() {
            let joint = if index == 0 { "" } else { ", " };
            add(&variable.text(), joint, Part::Left(index));
        }
        for (index, variable) in self.right.iter().enumerate() {
            let joint = if index == 0 { " -> " } else { ", " };
            add(&variable.text(), joint, Part::Right(index));
        }
        for (index, attribute) in statement.attributes.iter().enumerate() {
            add(
                &statement.text[attribute.span.clone()],
                ", ",
                Part::Attribute(index),
            );
        }
        let whole = Some(0..text.len());
        let span = found.or(whole).filter(|span| span.end <= MAX_SHOWN);
        if text.len() > MAX_SHOWN {
            let end = (0..=MAX_SHOWN).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
            text.push('…');
        }
        (text, span)
    }
}

impl Variable {
    fn text(&self) -> String {
        let transposed = if self.transposed { "^T" } else { "" };
        format!("{}{transposed}", self.name)
    }
}
