//! Attention of one new token to the keys and values of all before it, for generation.

use super::Heads;
use crate::exponentials::exponentials;
use crate::reduce::{dot, max};
use crate::{Pool, Real};
use pulp::Arch;

impl Heads {
    /// `output[query heads, dim]` of one token's `query[query heads, dim]` against the cached `keys` and `values[tokens, key heads, dim]`, its own included.
    ///
    /// # Panics
    /// If lengths do not fit together.
    pub fn decode<R: Real>(
        &self,
        pool: &Pool,
        scale: f64,
        query: &[R],
        [keys, values]: [&[R]; 2],
        output: &mut [R],
    ) {
        assert_eq!(
            self.queries,
            self.group() * self.keys,
            "groups of heads differ"
        );
        assert_eq!(query.len(), self.queries * self.dim);
        assert_eq!(output.len(), query.len());
        assert_eq!(keys.len(), values.len());
        if output.is_empty() {
            return;
        }
        let width = self.keys * self.dim;
        assert_eq!(keys.len() % width, 0);
        let share = self.group() * self.dim;
        let tasks = output.chunks_mut(share).zip(query.chunks(share));
        pool.each(tasks.enumerate(), |(head, (output, query))| {
            let place = head * self.dim..(head + 1) * self.dim;
            for (output, query) in output.chunks_mut(self.dim).zip(query.chunks(self.dim)) {
                let keys = keys.chunks(width).map(|row| &row[place.clone()]);
                let values = values.chunks(width).map(|row| &row[place.clone()]);
                let scores = keys.map(|key| dot(query, key) * R::from_f64(scale));
                attend(scores.collect(), values, output);
            }
        });
    }
}

/// The mean of `values`, weighted by the softmax of `scores`.
fn attend<'a, R: Real>(
    mut scores: Vec<R>,
    values: impl Iterator<Item = &'a [R]>,
    output: &mut [R],
) {
    let maximum = max(&scores);
    let share = R::ONE / exponentials(Arch::new(), &mut scores, R::ONE, maximum);
    output.fill(R::ZERO);
    for (&score, value) in scores.iter().zip(values) {
        for (output, &value) in output.iter_mut().zip(value) {
            *output += score * share * value;
        }
    }
}
