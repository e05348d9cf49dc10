//! Gradients of whole blocks against finite differences, in `f64`.

use crate::chain::{Chain, Outcome, Way};
use crate::samples::{batch, config, models, models_of_three, one_token, values};

const STEP: f64 = 1e-5;

fn close(actual: f64, expected: f64, what: &str) {
    let scale = expected.abs().max(actual.abs()).max(0.1);
    assert!(
        (actual - expected).abs() <= 1e-7 * scale,
        "{what}: {actual} instead of {expected}"
    );
}

/// Compares every `stride`-th element of every gradient with the slope of the objective.
fn check_elements(name: &str, chain: &Chain<f64>, stride: usize) {
    let outcome = chain.run(Way::ALONE);
    let slope = |change: &dyn Fn(&mut Chain<f64>, f64)| {
        let at = |step| {
            let mut moved = chain.clone();
            change(&mut moved, step);
            moved.objective(Way::ALONE)
        };
        (at(STEP) - at(-STEP)) / (2.0 * STEP)
    };
    for (block, gradients) in outcome.gradients.iter().enumerate() {
        for (parameter, gradient) in gradients.iter().enumerate() {
            for element in (0..gradient.len()).step_by(stride) {
                let expected =
                    slope(&|chain, step| chain.weights[block][parameter][element] += step);
                let what =
                    format!("{name}: element {element} of parameter {parameter} of block {block}");
                close(gradient[element], expected, &what);
            }
        }
    }
    for element in (0..outcome.input_gradient.len()).step_by(stride) {
        let expected = slope(&|chain, step| chain.input[element] += step);
        close(
            outcome.input_gradient[element],
            expected,
            &format!("{name}: element {element} of the input"),
        );
    }
}

/// Compares the slope of the objective along a direction in all weights and the input, on this layout.
fn check_direction(name: &str, chain: &Chain<f64>, way: Way) {
    let along = |seed: usize, len: usize| values::<f64>(len, seed as u64 + 100, 0.05);
    let moved = |step: f64| {
        let mut moved = chain.clone();
        let parameters = moved.weights.iter_mut().flatten().chain([&mut moved.input]);
        for (seed, parameter) in parameters.enumerate() {
            let direction = along(seed, parameter.len());
            parameter
                .iter_mut()
                .zip(direction)
                .for_each(|(value, change)| *value += step * change);
        }
        moved.objective(way)
    };
    let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
    let Outcome {
        input_gradient,
        gradients,
        ..
    } = chain.run(way);
    let all = gradients.iter().flatten().chain([&input_gradient]);
    let actual = all.enumerate().map(|(seed, gradient)| {
        let terms = gradient.iter().zip(along(seed, gradient.len()));
        terms.map(|(slope, change)| slope * change).sum::<f64>()
    });
    close(actual.sum(), expected, name);
}

#[test]
fn every_element_of_every_gradient_of_each_block_is_a_slope() {
    for (name, config) in models() {
        for block in [0, 1, 3] {
            let chain = Chain::new(&config, block..block + 1, batch(config.vocab_size));
            check_elements(&format!("{name}, block {block}"), &chain, 3);
        }
    }
}

#[test]
fn whole_models_have_slopes_on_every_layout() {
    for (tp, models) in [(1, models()), (2, models()), (3, models_of_three())] {
        for (name, config) in models {
            for sequence_parallel in [false, true] {
                let chain = Chain::whole(&config, batch(config.vocab_size));
                let way = Way::ranks(tp, sequence_parallel);
                check_direction(&format!("{name} on {way:?}"), &chain, way);
            }
        }
    }
}

#[test]
fn one_token_has_slopes_too() {
    let config = config("LlamaForCausalLM", r#"{"num_key_value_heads": 4}"#);
    let chain = Chain::whole(&config, one_token());
    check_elements("one token", &chain, 5);
    for tp in [2, 4] {
        check_direction("one token", &chain, Way::ranks(tp, true));
    }
}

#[test]
fn a_tied_weight_has_the_sum_of_both_gradients() {
    let config = config("LlamaForCausalLM", r#"{"tie_word_embeddings": true}"#);
    let chain = Chain::<f64>::whole(&config, batch(config.vocab_size));
    let outcome = chain.run(Way::ALONE);
    assert_eq!(
        chain.weights[0][0], chain.weights[3][1],
        "values follow from names"
    );
    for element in (0..chain.weights[0][0].len()).step_by(7) {
        let at = |step: f64| {
            let mut moved = chain.clone();
            moved.weights[0][0][element] += step;
            moved.weights[3][1][element] += step;
            moved.objective(Way::ALONE)
        };
        let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
        let actual = outcome.gradients[0][0][element] + outcome.gradients[3][1][element];
        close(actual, expected, &format!("element {element}"));
    }
}
