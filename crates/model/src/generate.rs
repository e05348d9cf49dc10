//! Predicting the next token of one sequence, with a cache of what was seen.

use crate::config::ModelConfig;
use crate::decoder::{Cache, DecoderLayer};
use crate::embedding::Embedding;
use crate::error::Error;
use crate::head::Head;
use crate::model::Options;
use crate::rows::{Place, Share, check_len};
use cairn_kernels::{Pool, Real};

/// A model on one rank that reads a sequence and says what may follow.
#[derive(Debug)]
pub struct Generator<R> {
    vocab_size: usize,
    hidden_size: usize,
    embedding: Embedding,
    layers: Vec<DecoderLayer>,
    head: Head,
    caches: Vec<Cache<R>>,
}

impl<R: Real> Generator<R> {
    /// A model that has seen nothing.
    pub fn new(config: &ModelConfig) -> Self {
        let options = Options::default();
        let layers = 0..config.num_hidden_layers;
        Self {
            vocab_size: config.vocab_size,
            hidden_size: config.hidden_size,
            embedding: Embedding::new(config),
            caches: layers.clone().map(|_| Cache::default()).collect(),
            layers: layers
                .map(|layer| DecoderLayer::new(config, &options, layer))
                .collect(),
            head: Head::new(config, &options),
        }
    }

    /// How many tokens it has seen.
    pub fn seen(&self) -> usize {
        self.caches.first().map_or(0, Cache::len)
    }

    /// Reads the next tokens, and returns the logits of the one that follows; none if there are no tokens. `weights` has the slice of each of the
    /// model's [`blocks`](crate::blocks), whole.
    ///
    /// # Errors
    /// [`Error::Token`] if a token is not in the vocabulary, [`Error::Length`] if slices do not have the lengths of the blocks; nothing is read then.
    pub fn read(&mut self, pool: &Pool, weights: &[&[R]], tokens: &[u32]) -> Result<Vec<R>, Error> {
        self.check(weights)?;
        let share = Share::WHOLE;
        let mut rows = self.embedding.rows(pool, share, weights[0], tokens)?;
        let place = Place {
            pool,
            share,
            rows: tokens.len(),
        };
        for ((layer, cache), weights) in self.layers.iter().zip(&mut self.caches).zip(&weights[1..])
        {
            rows = layer.extend(place, weights, rows, cache);
        }
        let last = &rows[rows.len().saturating_sub(self.hidden_size)..];
        let place = Place {
            rows: last.len() / self.hidden_size,
            ..place
        };
        let head = weights[self.layers.len() + 1];
        Ok(self.head.logits_alone(place, head, last).to_vec())
    }

    fn check(&self, weights: &[&[R]]) -> Result<(), Error> {
        check_len("the list of slices", weights.len(), self.layers.len() + 2)?;
        check_len(
            "the embedding's slice",
            weights[0].len(),
            self.vocab_size * self.hidden_size,
        )?;
        for (layer, weights) in self.layers.iter().zip(&weights[1..]) {
            check_len("the layer's slice", weights.len(), layer.len(Share::WHOLE))?;
        }
        let last = weights[self.layers.len() + 1];
        check_len("the head's slice", last.len(), self.head.len(Share::WHOLE))
    }
}
