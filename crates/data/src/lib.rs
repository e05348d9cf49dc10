//! Tokens to train on: files of them, an order that is one number, packing and mixtures.
//!
//! [`Documents`] are a long stream of tokens with the places where documents end: a [`TokenFile`] of our own, or a [`Megatron`] pair. [`Samples`] cut the stream into
//! sequences, an [`Order`] says which one comes when, a [`Mixture`] takes turns between sources, and a [`Loader`] puts all of it together: the sample at a position of
//! the run is a function of the files, the seed and that one number. So where a run stands is one number, too, whatever ranks, batches and accumulation it has:
//!
//! ```
//! use cairn_data::{Cut, Loader, Samples, Source, TokenFile, TokenWriter, Width, share};
//! use std::sync::Arc;
//!
//! let store: Arc<dyn cairn_store::Store> = Arc::new(cairn_store::Memory::new());
//! let mut writer = TokenWriter::create(&store, "corpus.tokens", Width::U16, Some(100))?;
//! for document in 0..50 {
//!     writer.push(&[document, document + 1, document + 2, 99], None)?;
//! }
//! writer.finish()?;
//!
//! let documents = Arc::new(TokenFile::open(&store, "corpus.tokens")?);
//! let samples = Samples::new(documents, Cut::Packed, 16)?;
//! let loader = Loader::new(vec![Source::new("corpus", samples, 1.0)], Some(7))?;
//!
//! // A step of 8 samples after 24 consumed ones; this is rank 1 of 2.
//! let mine = share(24..32, 2, 1);
//! let batch = loader.batch(mine)?;
//! assert_eq!((batch.len(), batch[0].position), (4, 28));
//! # Ok::<(), cairn_data::Error>(())
//! ```
//!
//! Text becomes tokens by a [`Tokenizer`]: [`Bytes`], or with the feature `tokenizers` any `tokenizer.json`. [`Texts`] reads documents from files, [`Tokenize`] puts the tokens into a file.
//!
//! Files are read by position, a few ranges for each sample: memory does not grow with them, and what is read often stays in the system's page cache.

mod documents;
mod error;
mod file;
mod loader;
mod megatron;
mod mixture;
mod order;
mod packing;
mod prefetch;
mod sample;
mod samples;
mod state;
#[cfg(test)]
mod testing;
mod text;
mod tokenize;
mod tokenizer;
mod tokens;

pub use documents::{Documents, Fields, bounds, document_at, open};
pub use error::Error;
pub use loader::{Budget, Loader, Source, share};
pub use megatron::Megatron;
pub use mixture::{MAX_SOURCES, Mixture};
pub use order::{MAX_SAMPLES, Order};
pub use prefetch::Prefetch;
pub use sample::{IGNORED, PADDING, Sample};
pub use samples::{Cut, Samples};
pub use state::State;
pub use text::{Format, Keep, Text, Texts};
pub use tokenize::{Tokenize, Tokenized};
#[cfg(feature = "tokenizers")]
pub use tokenizer::HuggingFace;
pub use tokenizer::{Bytes, Tokenizer, tokenizer};
pub use tokens::{TokenFile, TokenWriter, Width};
