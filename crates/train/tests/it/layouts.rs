//! Every layout trains as one rank does.

use crate::support::{Case, Model, assert_close, assert_same, train};
use crate::toy;
use cairn_checkpoint::{Checkpointer, World};
use cairn_store::{Memory, Store};
use cairn_train::settings::{Optimizer, Precision};
use cairn_train::{StepReport, weights};
use std::sync::Arc;

const STEPS: u64 = 20;

fn run(case: &Case, model: &Model) -> Vec<StepReport> {
    train(case, model, None, (STEPS, STEPS))
}

/// Trains on every second layout from `start` on, twice, and compares with one rank.
fn compare(model: &Model, start: usize) {
    let alone = run(&Case::alone(), model);
    let [first, .., last] = &alone[..] else {
        panic!("a run of one step");
    };
    assert!(last.loss < 0.9 * first.loss, "it learns: {last:?}");
    for case in Case::all().into_iter().skip(start).step_by(2) {
        let found = run(&case, model);
        assert_close(&case, &found, &alone);
        assert_same(&case, &run(&case, model), &found);
    }
}

#[test]
fn there_are_forty_layouts_with_everything_in_them() {
    let cases = Case::all();
    assert!(cases.len() >= 40, "{}", cases.len());
    let any = |test: fn(&Case) -> bool| cases.iter().any(test);
    assert!(any(
        |case| case.parallel.chunks == 2 && case.parallel.zero == 3
    ));
    assert!(any(
        |case| case.parallel.sequence_parallel && case.parallel.zero == 2
    ));
    assert!(any(
        |case| case.parallel.mesh.size() == 8 && case.parallel.micro_batches > 1
    ));
}

#[test]
fn llama_trains_alike_on_layouts_of_every_kind() {
    compare(&Model::decoder("LlamaForCausalLM", false, 0.0), 0);
}

#[test]
fn a_tied_qwen_with_dropout_trains_alike_on_the_other_layouts() {
    compare(&Model::decoder("Qwen3ForCausalLM", true, 0.1), 1);
}

#[test]
fn a_model_of_ones_own_trains_alike() {
    let model = toy::model();
    let alone = run(&Case::alone(), &model);
    for case in [
        Case::new("pp=2,dp=2", 3, 3),
        Case::new("pp=5", 0, 4),
        Case::new("dp=4", 2, 1),
    ] {
        assert_close(&case, &run(&case, &model), &alone);
    }
}

/// After one step of plain descent, parameters differ from their first values by their gradients.
#[test]
fn every_gradient_is_that_of_one_rank() {
    let model = Model::decoder("Qwen2ForCausalLM", true, 0.0);
    let after_one_step = |case: &Case| {
        let mut case = case.clone();
        case.optimizer = Optimizer::Sgd {
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        };
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        train(&case, &model, Some(&store), (1, 1));
        let source = Checkpointer::new(store, World::single()).open(1).unwrap();
        weights::whole(&(Arc::new(source) as _), &model.alone()).unwrap()
    };
    let expected = after_one_step(&Case::alone());
    for case in Case::all().iter().step_by(5) {
        for (actual, expected) in after_one_step(case).iter().zip(&expected) {
            let pairs = actual.iter().zip(expected);
            let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 2e-6, "{case}: {worst}");
        }
    }
}

#[test]
fn narrow_parameters_train_alike_within_their_precision() {
    let model = Model::decoder("LlamaForCausalLM", false, 0.0);
    let narrow = |mut case: Case| {
        case.precision = Precision::Bf16;
        run(&case, &model)
    };
    let alone = narrow(Case::alone());
    for case in [Case::new("dp=2,tp=2", 3, 1), Case::new("pp=2,dp=2", 1, 2)] {
        for (actual, expected) in narrow(case).iter().zip(&alone) {
            assert!((actual.loss - expected.loss).abs() < 2e-2 * expected.loss);
        }
    }
}
