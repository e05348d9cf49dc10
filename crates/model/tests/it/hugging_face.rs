//! Losses and gradients against those of transformers, as `golden/hugging_face.py` wrote them down.

use crate::chain::{Chain, Way};
use cairn_model::{Batch, ModelConfig, Options, blocks};
use serde_json::Value;
use std::collections::BTreeMap;

const GOLDEN: &str = include_str!("../golden/hugging_face.json");

/// The batch of the script.
fn batch() -> Batch {
    Batch {
        sequences: 2,
        length: 5,
        tokens: vec![3, 10, 4, 11, 5, 0, 12, 7, 1, 9],
        targets: vec![2, 5, 0, 12, 7, -100, 1, 3, -100, 11],
        positions: (0..10).map(|place| place % 5).collect(),
        documents: vec![0; 10],
        samples: vec![0, 1],
        ..Batch::default()
    }
}

/// The gradient of each parameter, of tied ones the sum, by name.
fn gradients(chain: &Chain<f64>, way: Way) -> BTreeMap<String, Vec<f64>> {
    let blocks = blocks::<f64>(&chain.config, &Options::default());
    let names = blocks.iter().flat_map(|block| block.parameters());
    let mut gradients: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (parameter, gradient) in names.zip(chain.run(way).gradients.concat()) {
        let sum = gradients
            .entry(parameter.name)
            .or_insert_with(|| vec![0.0; gradient.len()]);
        sum.iter_mut()
            .zip(gradient)
            .for_each(|(sum, term)| *sum += term);
    }
    gradients
}

fn close(actual: f64, expected: &Value, what: &str) {
    let expected = expected.as_f64().unwrap();
    // Transformers normalises and takes exponentials in `f32`, whatever the weights are.
    assert!(
        (actual - expected).abs() < 1e-5 * expected.abs().max(1.0),
        "{what}: {actual} instead of {expected}"
    );
}

#[test]
fn losses_and_gradients_are_those_of_transformers() {
    let golden: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    assert_eq!(golden.len(), 5);
    for model in golden {
        let config = ModelConfig::from_json(&model["config"].to_string()).unwrap();
        let chain = Chain::<f64>::whole(&config, batch());
        for way in [Way::ALONE, Way::ranks(2, true)] {
            let what = format!("{} on {way:?}", model["config"]);
            let losses = chain.run(way).output;
            for (loss, expected) in losses.iter().zip(model["losses"].as_array().unwrap()) {
                close(*loss, expected, &what);
            }
            let gradients = gradients(&chain, way);
            assert_eq!(
                gradients.len(),
                model["gradients"].as_object().unwrap().len()
            );
            for (name, gradient) in gradients {
                let what = format!("`{name}` of {what}");
                let norm = gradient.iter().map(|it| it * it).sum::<f64>().sqrt();
                let along = gradient.iter().enumerate();
                let along = along.map(|(place, it)| it * (place as f64).cos()).sum();
                close(norm, &model["gradients"][&name][0], &what);
                close(along, &model["gradients"][&name][1], &what);
            }
        }
    }
}
