//! Turns documents of text into a file of tokens.

use crate::{Error, Text, TokenWriter, Tokenizer};
use std::num::NonZeroUsize;
use std::thread;

/// How much text is turned into tokens at once, in bytes.
const BATCH_BYTES: usize = 8 << 20;

/// How documents become tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokenize {
    /// The token added to every document.
    pub append: Option<u32>,
    /// How many threads work; the tokens do not depend on it.
    pub threads: NonZeroUsize,
}

/// What became of the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokenized {
    /// How many documents were written.
    pub documents: u64,
    /// How many tokens they have.
    pub tokens: u64,
    /// How many bytes of text they had.
    pub text_bytes: u64,
    /// How many documents had no text, and were left out.
    pub empty: u64,
}

impl Tokenize {
    /// Adds all documents to a file, in their order. After each part of them, `progress` gets the bytes of files that were done.
    ///
    /// # Errors
    /// If a text cannot be read or is refused by the tokenizer, or the store has no space.
    pub fn run(
        &self,
        tokenizer: &dyn Tokenizer,
        texts: impl IntoIterator<Item = Result<Text, Error>>,
        writer: &mut TokenWriter,
        mut progress: impl FnMut(u64),
    ) -> Result<Tokenized, Error> {
        let mut done = Tokenized::default();
        let mut texts = texts.into_iter();
        loop {
            let batch = take_batch(&mut texts, &mut done)?;
            if batch.is_empty() {
                return Ok(done);
            }
            for (text, mut tokens) in batch.iter().zip(self.encode(tokenizer, &batch)?) {
                tokens.extend(self.append);
                writer.push(&tokens, text.fields.as_ref())?;
                done.documents += 1;
                done.tokens += tokens.len() as u64;
            }
            done.text_bytes += batch.iter().map(|text| text.text.len() as u64).sum::<u64>();
            progress(batch.iter().map(|text| text.len_bytes).sum());
        }
    }

    /// The tokens of each text, found by several threads.
    fn encode(&self, tokenizer: &dyn Tokenizer, batch: &[Text]) -> Result<Vec<Vec<u32>>, Error> {
        let each = batch.len().div_ceil(self.threads.get());
        let encode = |part: &[Text]| -> Result<Vec<_>, Error> {
            part.iter()
                .map(|text| tokenizer.encode(&text.text))
                .collect()
        };
        let parts: Vec<Result<Vec<_>, Error>> = thread::scope(|scope| {
            let spawn = |part| scope.spawn(move || encode(part));
            let threads: Vec<_> = batch.chunks(each).map(spawn).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|reason| std::panic::resume_unwind(reason))
            };
            threads.into_iter().map(join).collect()
        });
        let parts: Result<Vec<Vec<_>>, Error> = parts.into_iter().collect();
        Ok(parts?.concat())
    }
}

/// The next texts, as many as are worked on at once.
fn take_batch(
    texts: &mut impl Iterator<Item = Result<Text, Error>>,
    done: &mut Tokenized,
) -> Result<Vec<Text>, Error> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        let Some(text) = texts.next().transpose()? else {
            break;
        };
        if text.text.is_empty() {
            done.empty += 1;
            continue;
        }
        bytes += text.text.len();
        batch.push(text);
    }
    Ok(batch)
}

#[cfg(test)]
mod tests;
