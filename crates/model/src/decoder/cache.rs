//! Reading a sequence a few tokens at a time.

use super::attention::Attention;
use crate::parts::cut;
use crate::rows::Place;
use cairn_kernels::attention::{self as kernel, Heads, Inputs};
use cairn_kernels::{Buffer, Real};

/// What was seen of one sequence: the keys and values of its tokens.
#[derive(Debug)]
pub(crate) struct Cache<R> {
    tokens: usize,
    keys: Vec<R>,
    values: Vec<R>,
}

impl<R> Default for Cache<R> {
    fn default() -> Self {
        Self {
            tokens: 0,
            keys: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<R> Cache<R> {
    /// How many tokens were seen.
    pub(crate) fn len(&self) -> usize {
        self.tokens
    }
}

impl Attention {
    /// What new tokens see in the cache and, in order, in each other; they are added to the cache.
    pub(crate) fn extend<R: Real>(
        &self,
        place: Place<'_>,
        weights: &[R],
        rows: &[R],
        cache: &mut Cache<R>,
    ) -> Buffer<R> {
        let [query, key, value, norms, output] = cut(weights, self.lens(place.share));
        let raw = [
            self.query.forward(place, query, rows),
            self.key.forward(place, key, rows),
        ];
        let positions = cache.tokens..cache.tokens + place.rows;
        let positions: Vec<u32> = positions
            .map(|place| u32::try_from(place).unwrap_or(u32::MAX))
            .collect();
        let [queries, keys] = self.turn(place, norms, &positions, raw).rows;
        cache.keys.extend_from_slice(&keys);
        let values = self.value.forward(place, value, rows);
        cache.values.extend_from_slice(&values);
        let heads = self.heads(place.share);
        let attended = match cache.tokens {
            0 => self.first(place, heads, &queries, cache),
            _ => self.further(place, heads, &queries, cache),
        };
        cache.tokens += place.rows;
        self.output.forward(place, output, &attended)
    }

    /// The first tokens see each other only: all at once.
    fn first<R: Real>(
        &self,
        place: Place<'_>,
        heads: Heads,
        queries: &[R],
        cache: &Cache<R>,
    ) -> Buffer<R> {
        let attention = kernel::Attention {
            heads,
            length: place.rows,
            documents: &vec![0; place.rows],
            scale: self.scale(),
        };
        let inputs = Inputs {
            queries,
            keys: &cache.keys,
            values: &cache.values,
        };
        let mut attended = place.pool.buffer(queries.len());
        let mut log_sums = place.pool.buffer(attention.log_sums_len());
        attention.forward(place.pool, inputs, &mut attended, &mut log_sums);
        attended
    }

    /// Each further token sees the cache up to itself.
    fn further<R: Real>(
        &self,
        place: Place<'_>,
        heads: Heads,
        queries: &[R],
        cache: &Cache<R>,
    ) -> Buffer<R> {
        let [query_width, key_width] = [heads.queries, heads.keys].map(|count| count * heads.dim);
        let mut attended = place.pool.buffer(queries.len());
        let tokens = queries
            .chunks(query_width)
            .zip(attended.chunks_mut(query_width));
        for (token, (query, target)) in tokens.enumerate() {
            let seen = ..(cache.tokens + token + 1) * key_width;
            let cached = [&cache.keys[seen], &cache.values[seen]];
            heads.decode(place.pool, self.scale(), query, cached, target);
        }
        attended
    }
}
