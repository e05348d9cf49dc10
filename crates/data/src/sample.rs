//! One sequence to train on.

use crate::Fields;

/// The target of a token whose loss does not count.
pub const IGNORED: i64 = -100;

/// The token that fills up sequences; nothing is learnt from it, and no other token sees it.
pub const PADDING: u32 = 0;

/// One sequence to train on: a run of tokens, and what should follow each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// The token that should follow each, or [`IGNORED`].
    pub targets: Vec<i64>,
    /// The place of each token in its part of a document.
    pub positions: Vec<u32>,
    /// The document of each token, counted in the sequence; tokens see only tokens of their own document.
    pub documents: Vec<u32>,
    /// The number of the sample in the run.
    pub position: u64,
    /// The number of its source.
    pub source: usize,
    /// How often the source was gone through before.
    pub epoch: u64,
    /// The number of the sample in its source.
    pub index: u64,
    /// What else is known about each document in it; empty where the source keeps no fields.
    pub fields: Vec<Option<Fields>>,
}

impl Sample {
    /// How many tokens there are, padding included.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// How many of its targets count.
    pub fn counted(&self) -> u64 {
        self.targets
            .iter()
            .filter(|target| **target != IGNORED)
            .count() as u64
    }

    /// Adds a part of a document: `tokens`, and of the `targets` as many as are known.
    pub(crate) fn push(&mut self, tokens: &[u32], targets: &[u32]) {
        let document = self.documents.last().map_or(0, |last| last + 1);
        self.tokens.extend(tokens);
        self.targets
            .extend(targets.iter().map(|target| i64::from(*target)));
        self.targets.resize(self.tokens.len(), IGNORED);
        self.positions.extend((0..).take(tokens.len()));
        self.documents.resize(self.tokens.len(), document);
    }

    /// Fills the sequence up to `length` tokens with a document of padding; longer ones stay as they are.
    pub fn pad(&mut self, length: usize) {
        let missing = length.saturating_sub(self.len());
        self.push(&vec![PADDING; missing], &[]);
    }
}
