//! Ranks that share blocks give what one rank gives.

use crate::chain::{Chain, Outcome, Way};
use crate::samples::{batch, config, models, models_of_three, one_token};
use cairn_collectives::numbers::Number;
use cairn_collectives::threads;
use cairn_kernels::{Pool, Real};
use cairn_model::{Architecture, Batch, Error, Head, ModelConfig, Options, Pass};
use proptest::array::uniform4;
use proptest::prelude::*;

fn check_equal<R: Real>(name: &str, actual: &Outcome<R>, expected: &Outcome<R>, tolerance: f64) {
    let both = |outcome: &Outcome<R>| -> Vec<Vec<f64>> {
        let all = outcome.gradients.iter().flatten();
        let all = all.chain([&outcome.output, &outcome.input_gradient]);
        all.map(|numbers| numbers.iter().map(|number| number.to_f64()).collect())
            .collect()
    };
    for (index, (actual, expected)) in both(actual).iter().zip(both(expected)).enumerate() {
        assert_eq!(actual.len(), expected.len());
        let largest = expected
            .iter()
            .fold(1.0, |largest: f64, value| largest.max(value.abs()));
        for (actual, expected) in actual.iter().zip(expected) {
            let difference = (actual - expected).abs();
            assert!(
                difference <= tolerance * largest,
                "{name}, {index}: {actual} instead of {expected}"
            );
        }
    }
}

fn check_layouts<R: Real + Number>(
    name: &str,
    config: &ModelConfig,
    batch: &Batch,
    sizes: &[usize],
    tolerance: f64,
) {
    let chain = Chain::<R>::whole(config, batch.clone());
    let alone = chain.run(Way::ALONE);
    for &tp in sizes {
        for sequence_parallel in [false, true] {
            let way = Way::ranks(tp, sequence_parallel);
            check_equal(
                &format!("{name} on {way:?}"),
                &chain.run(way),
                &alone,
                tolerance,
            );
        }
    }
}

#[test]
fn every_layout_gives_what_one_rank_gives() {
    for (sizes, models) in [([1, 2], models()), ([1, 3], models_of_three())] {
        for (name, config) in models {
            let batch = batch(config.vocab_size);
            check_layouts::<f64>(name, &config, &batch, &sizes, 1e-12);
            check_layouts::<f32>(name, &config, &batch, &sizes, 1e-5);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sizes_of_every_kind_may_be_shared_out(
        [tp, groups, group, pairs] in uniform4(1..4_usize),
        [hidden_size, intermediate_size, vocab_size, length] in uniform4(1..12_usize),
        class in 0..3_usize,
        (sequences, flag) in (1..3_usize, any::<bool>()),
    ) {
        let config = ModelConfig {
            hidden_size,
            intermediate_size,
            vocab_size,
            num_hidden_layers: 1,
            num_attention_heads: tp * groups * group,
            num_key_value_heads: tp * groups,
            head_dim: 2 * pairs,
            tie_word_embeddings: flag,
            dropout: 0.2,
            ..config(Architecture::ALL[class].class(), "{}")
        };
        prop_assert!(config.parallel_problems(tp).is_empty());
        let tokens = sequences * length;
        let batch = Batch {
            sequences,
            length,
            tokens: (0..tokens).map(|place| u32::try_from(place * 5 % vocab_size).unwrap()).collect(),
            targets: (0..tokens).map(|place| i64::try_from(place * 3 % vocab_size).unwrap()).collect(),
            positions: (0..tokens).map(|place| u32::try_from(place % length).unwrap()).collect(),
            documents: (0..tokens).map(|place| u32::from(flag && place % length > 2)).collect(),
            samples: (0..sequences as u64).collect(),
            ..Batch::default()
        };
        check_layouts::<f64>("random sizes", &config, &batch, &[tp], 1e-11);
    }
}

#[test]
fn ranks_may_have_nothing_to_do() {
    let sizes = r#"{"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 5, "vocab_size": 13}"#;
    let config = config("LlamaForCausalLM", sizes);
    check_layouts::<f64>("few columns", &config, &batch(13), &[2, 4], 1e-12);
    check_layouts::<f64>("one token", &config, &one_token(), &[2, 4], 1e-12);
    check_layouts::<f64>("no token", &config, &Batch::default(), &[2, 4], 1e-12);
}

#[test]
fn threads_change_no_bit() {
    for (name, config) in models() {
        let chain = Chain::<f32>::whole(&config, batch(config.vocab_size));
        let [one, three] = [1, 3].map(|threads| {
            chain.run(Way {
                threads,
                ..Way::ranks(2, true)
            })
        });
        assert_eq!(one, three, "{name}");
    }
}

#[test]
fn logits_are_whole_on_every_rank_and_explain_the_loss() {
    let config = config("LlamaForCausalLM", "{}");
    let chain = Chain::<f64>::new(&config, 3..4, batch(13));
    let logits = |tp: usize, sequence_parallel: bool| {
        let all = threads::run(tp, threads::Options::default(), |group| {
            let pool = Pool::new(1);
            let pass = Pass {
                pool: &pool,
                tp: &*group,
                sequence_parallel,
                batch: &chain.batch,
                seed: 0,
                step: 0,
                training: false,
            };
            let head = Head::new(&config, &Options::default());
            let columns = pass.share().range(13);
            let norm = chain.weights[0][0].clone();
            let table = chain.weights[0][1][columns.start * 8..columns.end * 8].to_vec();
            let rows = pass.local_rows();
            head.logits(
                &pass,
                &[norm, table].concat(),
                &chain.input[rows.start * 8..rows.end * 8],
            )
        });
        let all = all.unwrap();
        assert!(all.iter().all(|logits| *logits == all[0]));
        all[0].to_vec()
    };
    let alone = logits(1, false);
    for (tp, sequence_parallel) in [(2, false), (3, true)] {
        let shared = logits(tp, sequence_parallel);
        assert!(
            shared
                .iter()
                .zip(&alone)
                .all(|(a, b)| (a - b).abs() < 1e-12)
        );
    }
    let losses = chain.run(Way::ALONE).output;
    for ((row, &target), loss) in alone.chunks(13).zip(&chain.batch.targets).zip(losses) {
        let log_sum = row.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        let expected = match usize::try_from(target) {
            Ok(target) => log_sum - row[target] + 0.01 * log_sum * log_sum,
            Err(_) => 0.0,
        };
        assert!((loss - expected).abs() < 1e-12);
    }
}

#[test]
fn a_rank_that_fails_ends_the_pass_of_the_others() {
    let config = config("LlamaForCausalLM", "{}");
    let batch = batch(13);
    let result = threads::run(2, threads::Options::default(), |group| {
        let pool = Pool::new(1);
        let pass = Pass {
            pool: &pool,
            tp: &*group,
            sequence_parallel: false,
            batch: &batch,
            seed: 0,
            step: 0,
            training: false,
        };
        let weights = vec![0.0_f64; 8 * if group.rank() == 0 { 7 } else { 5 }];
        let embedding = &cairn_model::blocks(&config, &Options::default())[0];
        embedding
            .forward(
                &pass,
                &weights,
                Vec::new().into(),
                cairn_model::Keep::Nothing,
            )
            .map(|_| ())
    });
    assert!(
        matches!(
            result,
            Err(Error::Length {
                expected: 48,
                actual: 40,
                ..
            })
        ),
        "{result:?}"
    );
}
