//! Attention against whole matrices of scores, and its gradients.

use crate::support::{check_gradients, close, inner, random, same_on_all_threads};
use cairn_kernels::attention::{Attention, Gradients, Heads, Inputs, Kept};
use cairn_kernels::{Pool, Real};
use proptest::prelude::*;

/// Random queries, keys and values.
struct Case<R> {
    heads: Heads,
    length: usize,
    documents: Vec<u32>,
    inputs: [Vec<R>; 3],
}

impl<R: Real> Case<R> {
    fn new([queries, keys, dim]: [usize; 3], length: usize, documents: Vec<u32>) -> Self {
        let tokens = documents.len();
        let heads = Heads { queries, keys, dim };
        let inputs = [queries, keys, keys];
        let mut seed = 0;
        let inputs = inputs.map(|heads| {
            seed += 1;
            random(seed, tokens * heads * dim)
        });
        Self {
            heads,
            length,
            documents,
            inputs,
        }
    }

    fn attention(&self) -> Attention<'_> {
        Attention {
            heads: self.heads,
            length: self.length,
            documents: &self.documents,
            scale: 0.7,
        }
    }

    fn inputs(&self) -> Inputs<'_, R> {
        let [queries, keys, values] = &self.inputs;
        Inputs {
            queries,
            keys,
            values,
        }
    }

    fn forward(&self, pool: &Pool, inputs: Inputs<'_, R>) -> [Vec<R>; 2] {
        let mut output = vec![R::from_f64(f64::NAN); inputs.queries.len()];
        let mut log_sums = vec![R::ZERO; self.attention().log_sums_len()];
        let attention = self.attention();
        attention.forward(pool, inputs, &mut output, &mut log_sums);
        [output, log_sums]
    }

    fn backward(&self, pool: &Pool, slope: &[R]) -> [Vec<R>; 3] {
        let [output, log_sums] = self.forward(pool, self.inputs());
        let kept = Kept {
            output: &output,
            log_sums: &log_sums,
        };
        let mut gradients = self.inputs.clone();
        let [queries, keys, values] = &mut gradients;
        let targets = Gradients {
            queries,
            keys,
            values,
        };
        let attention = self.attention();
        attention.backward(pool, self.inputs(), kept, slope, targets);
        gradients
    }

    /// The output, one row of scores at a time.
    fn naive(&self) -> Vec<f64> {
        let Heads { queries, keys, dim } = self.heads;
        let row = |x: &[R], heads: usize, token: usize, head: usize| -> Vec<f64> {
            let row = &x[(token * heads + head) * dim..][..dim];
            row.iter().map(|x| x.to_f64()).collect()
        };
        let mut output = Vec::new();
        for token in 0..self.documents.len() {
            let start = token - token % self.length;
            let seen = (start..=token).rev();
            let seen: Vec<_> = seen
                .take_while(|&other| self.documents[other] == self.documents[token])
                .collect();
            for head in 0..queries {
                let key_head = head * keys / queries;
                let query = row(&self.inputs[0], queries, token, head);
                let score = |&other: &usize| {
                    inner(&query, &row(&self.inputs[1], keys, other, key_head)) * 0.7
                };
                let weights: Vec<f64> = seen.iter().map(|other| score(other).exp()).collect();
                let total: f64 = weights.iter().sum();
                let mut sums = vec![0.0; dim];
                for (&other, weight) in seen.iter().zip(weights) {
                    for (sum, value) in
                        sums.iter_mut()
                            .zip(row(&self.inputs[2], keys, other, key_head))
                    {
                        *sum += weight / total * value;
                    }
                }
                output.extend(sums);
            }
        }
        output
    }
}

/// Documents of the given lengths in each sequence.
fn documents(sequences: usize, lengths: &[usize]) -> Vec<u32> {
    let runs = (0..)
        .zip(lengths)
        .flat_map(|(document, &length)| vec![document; length]);
    let sequence: Vec<u32> = runs.collect();
    sequence.repeat(sequences)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn tiles_give_what_whole_rows_give(
        keys in 1..3_usize,
        group in 1..4_usize,
        dim in 1..20_usize,
        sequences in 1..3_usize,
        lengths in prop::collection::vec(1..90_usize, 1..4),
    ) {
        let documents = documents(sequences, &lengths);
        let case = Case::<f64>::new([keys * group, keys, dim], lengths.iter().sum(), documents);
        let [output, _] = case.forward(&Pool::new(2), case.inputs());
        prop_assert!(close(&output, &case.naive(), 1e-12));
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    let cases = [
        ([1, 1, 1], 1, documents(1, &[1])),
        ([1, 1, 1], 3, documents(1, &[3])),
        ([2, 1, 3], 5, documents(2, &[2, 3])),
        ([4, 2, 2], 4, documents(1, &[4])),
        ([1, 1, 2], 67, documents(1, &[67])),
        ([2, 1, 1], 131, documents(1, &[60, 71])),
        ([1, 1, 1], 330, documents(1, &[5, 325])),
        ([2, 2, 2], 0, documents(1, &[])),
    ];
    for (heads, length, documents) in cases {
        let case = Case::<f64>::new(heads, length, documents);
        let slope = random(9, case.inputs[0].len());
        let gradients = case.backward(&pool, &slope);
        check_gradients(
            case.inputs.each_ref().map(Vec::as_slice),
            gradients.each_ref().map(Vec::as_slice),
            |[queries, keys, values]| {
                let inputs = Inputs {
                    queries,
                    keys,
                    values,
                };
                inner(&slope, &case.forward(&pool, inputs)[0])
            },
        );
    }
}

#[test]
fn many_tiles_of_keys_give_what_whole_rows_give() {
    let case = Case::<f64>::new([2, 1, 3], 1100, documents(1, &[530, 570]));
    let [output, _] = case.forward(&Pool::new(2), case.inputs());
    assert!(close(&output, &case.naive(), 1e-12));
}

#[test]
fn single_precision_is_near_double() {
    let case = Case::<f32>::new([4, 2, 16], 150, documents(2, &[40, 110]));
    let [output, _] = case.forward(&Pool::new(1), case.inputs());
    let naive: Vec<f32> = case.naive().into_iter().map(f32::from_f64).collect();
    assert!(close(&output, &naive, 3e-6));
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let case = Case::<f32>::new([6, 2, 24], 400, documents(3, &[30, 90, 280]));
    let slope = random(9, case.inputs[0].len());
    same_on_all_threads(|pool| {
        let forward = case.forward(pool, case.inputs());
        [&forward[..], &case.backward(pool, &slope)].concat()
    });
}

#[test]
fn one_query_against_a_cache_is_the_last_row() {
    let case = Case::<f64>::new([6, 3, 5], 77, documents(1, &[77]));
    let [output, _] = case.forward(&Pool::new(1), case.inputs());
    let row = 6 * 5;
    let mut last = vec![0.0; row];
    let query = &case.inputs[0][76 * row..];
    let cache = [&case.inputs[1][..], &case.inputs[2]];
    case.heads
        .decode(&Pool::new(2), 0.7, query, cache, &mut last);
    assert!(close(&last, &output[76 * row..], 1e-12));
}

#[test]
fn large_scores_neither_overflow_nor_vanish() {
    let mut case = Case::<f32>::new([1, 1, 4], 600, documents(1, &[600]));
    case.inputs[0].iter_mut().for_each(|x| *x *= 1e3);
    let slope = random(9, case.inputs[0].len());
    let [output, log_sums] = case.forward(&Pool::new(1), case.inputs());
    assert!(output.iter().chain(&log_sums).all(|x| x.is_finite()));
    let gradients = case.backward(&Pool::new(1), &slope).concat();
    assert!(gradients.iter().all(|x| x.is_finite()));
}

#[test]
fn what_is_no_number_reaches_those_who_see_it() {
    let mut case = Case::<f32>::new([1, 1, 4], 130, documents(1, &[70, 60]));
    case.inputs[1][10 * 4] = f32::NAN;
    let [output, _] = case.forward(&Pool::new(1), case.inputs());
    assert!(output[..10 * 4].iter().all(|x| x.is_finite()));
    assert!(output[10 * 4..70 * 4].iter().all(|x| x.is_nan()));
    assert!(output[70 * 4..].iter().all(|x| x.is_finite()));
}
