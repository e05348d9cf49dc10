//! How many logits are held at once changes nothing but memory.

use super::*;
use crate::block::{Batch, IGNORED};
use cairn_collectives::threads;
use cairn_kernels::Pool;

/// The losses, the gradient of the input and those of the parameters, as each of two ranks has them.
fn run(logits_at_once: usize, keep: Keep) -> Vec<Vec<f64>> {
    let config = ModelConfig::from_json(
        r#"{"model_type": "llama", "vocab_size": 7, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 0,
        "num_attention_heads": 2}"#,
    );
    let mut head = Head::new(&config.unwrap(), &Options::default());
    head.vocabulary.logits_at_once = logits_at_once;
    let batch = Batch {
        sequences: 1,
        length: 5,
        tokens: vec![0; 5],
        targets: vec![3, 6, IGNORED, 0, 4],
        positions: (0..5).collect(),
        documents: vec![0; 5],
        samples: vec![0],
        ..Batch::default()
    };
    let wave = |count: usize| {
        (1..=count)
            .map(|place| (place as f64 * 0.7).sin())
            .collect()
    };
    let ranks = threads::run(2, threads::Options::default(), |group| {
        let pass = Pass {
            pool: &Pool::new(1),
            tp: &*group,
            sequence_parallel: false,
            batch: &batch,
            seed: 0,
            step: 0,
            training: true,
        };
        let weights: Vec<f64> = wave(head.len(pass.share()));
        let mut gradients = vec![0.0; weights.len()];
        let (losses, saved) = head.forward(&pass, &weights, wave(20).into(), keep)?;
        let input = head.backward(&pass, &weights, saved, wave(5).into(), &mut gradients)?;
        Ok::<_, Error>([&losses[..], &input, &gradients].concat())
    });
    ranks.unwrap()
}

#[test]
fn the_number_of_logits_held_at_once_changes_nothing() {
    let expected = run(LOGITS_AT_ONCE, Keep::Everything);
    assert!(expected[0][..2].iter().all(|loss| *loss > 0.0) && expected[0][2] == 0.0);
    for keep in [Keep::Everything, Keep::Selected] {
        for logits_at_once in [1, 4, 8, 12, 16] {
            let actual = run(logits_at_once, keep);
            let pairs = actual.iter().flatten().zip(expected.iter().flatten());
            let largest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(
                largest < 1e-13,
                "{logits_at_once} at once: off by {largest}"
            );
        }
    }
}
