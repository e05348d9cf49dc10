//! Reading a sequence token by token gives what reading it at once gives.

use crate::chain::{Chain, Way};
use crate::samples::{batch, models};
use cairn_kernels::Pool;
use cairn_model::{Batch, Error, Generator, IGNORED, ModelConfig};

fn slices(chain: &Chain<f64>) -> Vec<Vec<f64>> {
    chain
        .weights
        .iter()
        .map(|parameters| parameters.concat())
        .collect()
}

#[test]
fn logits_do_not_depend_on_how_much_is_read_at_once() {
    let pool = Pool::new(2);
    for (name, config) in models() {
        let chain = Chain::<f64>::whole(&config, batch(13));
        let slices = slices(&chain);
        let weights: Vec<&[f64]> = slices.iter().map(Vec::as_slice).collect();
        let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
        let mut at_once = Generator::new(&config);
        let expected = at_once.read(&pool, &weights, &tokens).unwrap();
        let mut in_parts = Generator::new(&config);
        let mut last = Vec::new();
        for part in [
            &tokens[..1],
            &tokens[1..4],
            &[],
            &tokens[4..5],
            &tokens[5..],
        ] {
            let logits = in_parts.read(&pool, &weights, part).unwrap();
            assert_eq!(logits.len(), if part.is_empty() { 0 } else { 13 });
            last = logits;
        }
        assert_eq!(in_parts.seen(), 8);
        let difference = |(a, b): (&f64, &f64)| (a - b).abs();
        assert!(
            last.iter()
                .zip(&expected)
                .map(difference)
                .all(|it| it < 1e-12),
            "{name}"
        );
    }
}

#[test]
fn what_is_generated_from_is_what_is_trained() {
    let pool = Pool::new(1);
    for (name, config) in models() {
        let config = ModelConfig {
            dropout: 0.0,
            ..config
        };
        let tokens = vec![3, 1, 4, 1, 5];
        let batch = Batch {
            sequences: 1,
            length: 5,
            tokens: tokens.clone(),
            targets: vec![IGNORED, IGNORED, IGNORED, IGNORED, 7],
            positions: (0..5).collect(),
            documents: vec![0; 5],
            samples: vec![0],
            ..Batch::default()
        };
        let chain = Chain::<f64>::whole(&config, batch);
        let slices = slices(&chain);
        let weights: Vec<&[f64]> = slices.iter().map(Vec::as_slice).collect();
        let logits = Generator::new(&config)
            .read(&pool, &weights, &tokens)
            .unwrap();
        let log_sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        let expected = log_sum - logits[7] + 0.01 * log_sum * log_sum;
        let loss = chain.run(Way::ALONE).output[4];
        assert!(
            (loss - expected).abs() < 1e-12,
            "{name}: {loss} instead of {expected}"
        );
    }
}

#[test]
fn a_generator_refuses_what_does_not_fit() {
    let pool = Pool::new(1);
    let (_, config) = &models()[0];
    let slices = slices(&Chain::whole(config, batch(13)));
    let weights: Vec<&[f64]> = slices.iter().map(Vec::as_slice).collect();
    let mut generator = Generator::new(config);
    assert!(matches!(
        generator.read(&pool, &weights, &[2, 13]),
        Err(Error::Token { token: 13, .. })
    ));
    assert!(matches!(
        generator.read(&pool, &weights[1..], &[2]),
        Err(Error::Length { .. })
    ));
    assert_eq!(generator.seen(), 0);
}
