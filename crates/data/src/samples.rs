//! Sequences cut from a stream of documents.

use crate::packing::{GROUP, Packing};
use crate::{Documents, Error, Sample, document_at};
use std::ops::Range;
use std::sync::Arc;

/// The longest sequence, in tokens.
const MAX_LENGTH: usize = 1 << 28;

/// How sequences are cut from the stream of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// Sequence after sequence, whatever document the tokens are of; all tokens of a sequence see those before them.
    #[default]
    Stream,
    /// Sequence after sequence, but tokens see only their own document, in which positions start from 0.
    Masked,
    /// Documents that fit share a sequence whole, as [`Masked`](Self::Masked) ones; longer ones are cut where a sequence is full.
    Packed,
    /// Each document is a sequence of its own length; longer ones are cut where a sequence is full. For batches by [`Budget`](crate::Budget).
    Documents,
}

/// The sequences of one source, by number.
///
/// Every token that follows another (in its document, or in the stream for [`Cut::Stream`]) is the target of exactly one place of exactly one sequence. All sequences have `length`
/// tokens, if need be with padding, but for [`Cut::Documents`].
#[derive(Debug)]
pub struct Samples {
    documents: Arc<dyn Documents>,
    length: usize,
    cut: Cut,
    packing: Option<Packing>,
    /// What all tokens are below, if that is known.
    vocabulary: Option<u32>,
}

impl Samples {
    /// Cuts sequences of `length` tokens. For [`Cut::Packed`] and [`Cut::Documents`] this reads where all documents end, once.
    ///
    /// # Errors
    /// If `length` is 0 or too large, or the documents cannot be read.
    pub fn new(documents: Arc<dyn Documents>, cut: Cut, length: usize) -> Result<Self, Error> {
        if !(1..=MAX_LENGTH).contains(&length) {
            return Err(Error::Limit {
                what: "the length of sequences",
                value: length as u64,
                least: 1,
                most: MAX_LENGTH as u64,
            });
        }
        let shared = cut == Cut::Packed;
        let packing = match cut {
            Cut::Stream | Cut::Masked => None,
            Cut::Packed | Cut::Documents => {
                Some(Packing::new(documents.as_ref(), length as u64, shared)?)
            }
        };
        Ok(Self {
            vocabulary: documents.vocabulary(),
            documents,
            length,
            cut,
            packing,
        })
    }

    /// Refuses tokens that are not below `vocabulary` when they are read; those that are not below the vocabulary of the file are refused anyway.
    pub fn with_vocabulary(self, vocabulary: u32) -> Self {
        let known = self.vocabulary.unwrap_or(vocabulary);
        let vocabulary = Some(known.min(vocabulary));
        Self { vocabulary, ..self }
    }

    /// The documents they are cut from.
    pub fn documents(&self) -> &Arc<dyn Documents> {
        &self.documents
    }

    /// How they are cut.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// How many tokens a sequence has at most.
    pub fn length(&self) -> usize {
        self.length
    }

    /// How many sequences there are.
    pub fn count(&self) -> u64 {
        match &self.packing {
            Some(packing) => packing.count(),
            None => {
                let targets = self.documents.tokens().saturating_sub(1);
                targets.div_ceil(self.length as u64)
            }
        }
    }

    /// How many tokens a sequence has, found without reading them.
    ///
    /// # Errors
    /// If the documents cannot be read.
    pub fn length_of(&self, index: u64) -> Result<usize, Error> {
        match (&self.packing, self.cut) {
            (Some(packing), Cut::Documents) => {
                let parts = packing.parts(self.documents.as_ref(), index)?;
                let len: u64 = parts.iter().map(|part| part.len).sum();
                Ok(usize::try_from(len).expect("at most the length of sequences"))
            }
            _ => Ok(self.length),
        }
    }

    /// Reads a sequence.
    ///
    /// # Errors
    /// If `index` is not below [`count`](Self::count), or the documents cannot be read.
    pub fn get(&self, index: u64) -> Result<Sample, Error> {
        if index >= self.count() {
            return Err(Error::Limit {
                what: "the number of a sample",
                value: index,
                least: 0,
                most: self.count().saturating_sub(1),
            });
        }
        let mut sample = Sample {
            index,
            ..Sample::default()
        };
        match (&self.packing, self.cut) {
            (Some(packing), _) => {
                for part in packing.parts(self.documents.as_ref(), index)? {
                    let tokens = part.start..part.start + part.len;
                    self.push(&mut sample, tokens.clone(), tokens.end + 1)?;
                    self.push_fields(&mut sample, part.document)?;
                }
            }
            (None, Cut::Masked) => self.push_window(&mut sample, self.window(index))?,
            (None, _) => self.push(&mut sample, self.window(index), self.documents.tokens())?,
        }
        if sample.fields.iter().all(Option::is_none) {
            sample.fields.clear();
        }
        if self.cut != Cut::Documents {
            sample.pad(self.length);
        }
        Ok(sample)
    }

    /// The tokens of the stream that a sequence begins with; the very last token is only a target.
    fn window(&self, index: u64) -> Range<u64> {
        let last = self.documents.tokens() - 1;
        let start = index * self.length as u64;
        start..last.min(start.saturating_add(self.length as u64))
    }

    /// Adds a part of the stream; no target is behind `end`.
    fn push(&self, sample: &mut Sample, tokens: Range<u64>, end: u64) -> Result<(), Error> {
        let count =
            usize::try_from(tokens.end - tokens.start).expect("at most the length of sequences");
        let read = self.documents.read(tokens.start..end.min(tokens.end + 1))?;
        self.check(tokens.start, &read)?;
        sample.push(&read[..count], &read[1..]);
        Ok(())
    }

    /// Adds a part of the stream, document by document.
    fn push_window(&self, sample: &mut Sample, window: Range<u64>) -> Result<(), Error> {
        let documents = self.documents.as_ref();
        let mut document = document_at(documents, window.start)?;
        let mut from = window.start;
        while from < window.end {
            let group = document..documents.documents().min(document + GROUP);
            if group.is_empty() {
                let (file, tokens) = (documents.file().to_owned(), documents.tokens());
                let reason = format!("its documents end at token {from} of {tokens}");
                return Err(Error::Damaged { file, reason });
            }
            for end in documents.ends(group)? {
                let until = end.min(window.end);
                if from < until {
                    self.push(sample, from..until, end)?;
                    self.push_fields(sample, document)?;
                    from = until;
                }
                document += 1;
            }
        }
        Ok(())
    }

    /// Adds the fields of a document.
    fn push_fields(&self, sample: &mut Sample, document: u64) -> Result<(), Error> {
        sample.fields.push(self.documents.fields(document)?);
        Ok(())
    }

    /// Refuses a token outside of the vocabulary, with the document that holds it.
    fn check(&self, start: u64, tokens: &[u32]) -> Result<(), Error> {
        let Some(vocabulary) = self.vocabulary else {
            return Ok(());
        };
        let outside = |(_, token): &(u64, &u32)| **token >= vocabulary;
        let Some((place, token)) = (start..).zip(tokens).find(outside) else {
            return Ok(());
        };
        Err(Error::Document {
            file: self.documents.file().to_owned(),
            document: document_at(self.documents.as_ref(), place)?,
            reason: format!(
                "token {place} of the file is {token}, and the vocabulary has {vocabulary}"
            ),
        })
    }
}

#[cfg(test)]
mod tests;
