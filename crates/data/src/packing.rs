//! Which parts of documents share a sequence.
//!
//! Documents are packed in groups of [`GROUP`] neighbours. Of each document, parts as long as a sequence fill sequences of their own; what remains is packed by best fit, the
//! longest first. This depends on the lengths in the group alone, so a group is packed again whenever one of its sequences is asked for, and nothing but the
//! number of sequences before each group is kept: 8 bytes for 1,024 documents.

use crate::documents::start;
use crate::{Documents, Error};
use std::collections::BTreeSet;
use std::ops::Range;

/// How many neighbouring documents are packed together.
pub(crate) const GROUP: u64 = 1024;

/// A part of a document: `len` tokens of the stream with their targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// The document.
    pub(crate) document: u64,
    /// Its first token in the stream.
    pub(crate) start: u64,
    /// How many tokens it has; the target of the last is the token after it.
    pub(crate) len: u64,
}

/// The sequences of all documents of a source.
#[derive(Debug)]
pub(crate) struct Packing {
    length: u64,
    /// Whether what remains of documents shares sequences.
    shared: bool,
    /// How many sequences there are before each group, and in all.
    before: Vec<u64>,
}

impl Packing {
    /// Counts the sequences of each group, which reads where all documents end, once.
    pub(crate) fn new(documents: &dyn Documents, length: u64, shared: bool) -> Result<Self, Error> {
        let mut packing = Self {
            length,
            shared,
            before: vec![0],
        };
        let mut sum = 0;
        for group in 0..documents.documents().div_ceil(GROUP) {
            sum += packing.group(documents, group)?.count();
            packing.before.push(sum);
        }
        Ok(packing)
    }

    /// How many sequences there are.
    pub(crate) fn count(&self) -> u64 {
        self.before[self.before.len() - 1]
    }

    /// The parts of one sequence, in the order of the documents.
    pub(crate) fn parts(&self, documents: &dyn Documents, index: u64) -> Result<Vec<Part>, Error> {
        let group = self.before.partition_point(|before| *before <= index) - 1;
        let packed = self.group(documents, group as u64)?;
        let parts = packed.parts(index - self.before[group], self.length);
        parts.ok_or_else(|| Error::Damaged {
            file: documents.file().to_owned(),
            reason: "it has changed since it was opened".into(),
        })
    }

    fn group(&self, documents: &dyn Documents, group: u64) -> Result<Group, Error> {
        let first = group * GROUP;
        let last = documents.documents().min(first + GROUP);
        let mut from = start(documents, first)?;
        let mut group = Group::default();
        for (document, end) in (first..).zip(documents.ends(first..last)?) {
            // The last token of a document is nothing but a target.
            group.add(document, from..end.saturating_sub(1), self.length);
            from = end;
        }
        group.pack(self.length, self.shared);
        Ok(group)
    }
}

/// The sequences of one group of documents.
#[derive(Debug, Default)]
struct Group {
    /// For each long document its first part, and how many parts fill sequences of their own.
    full: Vec<(Part, u64)>,
    /// What remains of each document.
    rest: Vec<Part>,
    /// The sequences of what remains.
    bins: Vec<Vec<Part>>,
}

impl Group {
    fn add(&mut self, document: u64, tokens: Range<u64>, length: u64) {
        let len = tokens.end.saturating_sub(tokens.start);
        let (full, rest) = (len / length, len % length);
        let start = tokens.start;
        if full > 0 {
            self.full.push((
                Part {
                    document,
                    start,
                    len: length,
                },
                full,
            ));
        }
        if rest > 0 {
            let start = start + full * length;
            self.rest.push(Part {
                document,
                start,
                len: rest,
            });
        }
    }

    /// Gives each remaining part the fullest sequence that it fits in, the longest part first.
    fn pack(&mut self, length: u64, shared: bool) {
        if !shared {
            self.bins = self.rest.drain(..).map(|part| vec![part]).collect();
            return;
        }
        self.rest.sort_by_key(|part| std::cmp::Reverse(part.len));
        let mut open = BTreeSet::new();
        for part in self.rest.drain(..) {
            let best = open.range((part.len, 0)..).next().copied();
            let (space, bin) = best.unwrap_or((length, self.bins.len()));
            open.remove(&(space, bin));
            open.insert((space - part.len, bin));
            if bin == self.bins.len() {
                self.bins.push(Vec::new());
            }
            self.bins[bin].push(part);
        }
    }

    fn count(&self) -> u64 {
        let full: u64 = self.full.iter().map(|(_, count)| count).sum();
        full + self.bins.len() as u64
    }

    /// The parts of a sequence, unless there are fewer sequences.
    fn parts(mut self, mut index: u64, length: u64) -> Option<Vec<Part>> {
        for (first, count) in self.full {
            if index < count {
                let start = first.start + index * length;
                return Some(vec![Part { start, ..first }]);
            }
            index -= count;
        }
        let bin = usize::try_from(index).ok()?;
        let parts = self.bins.get_mut(bin)?;
        parts.sort();
        Some(std::mem::take(parts))
    }
}
