//! Looking at data without training.

use crate::support::{Case, LENGTH, Model, VOCABULARY, data, trainer};

#[test]
fn every_layout_finds_the_same_losses_in_the_order_of_the_data() {
    let model = Model::decoder("Qwen2ForCausalLM", false, 0.5);
    let evaluate = |case: &Case| {
        let all = case.run(|world| {
            let mut trainer = trainer(case.settings(4), world, &model, None)?;
            let first = trainer.evaluate(data(VOCABULARY).as_mut(), 2)?;
            assert_eq!(
                trainer.evaluate(data(VOCABULARY).as_mut(), 2)?,
                first,
                "nothing changed"
            );
            trainer.step()?;
            Ok(first)
        });
        let mut all = all.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(all.iter().all(|one| *one == all[0]));
        all.swap_remove(0)
    };
    let alone = evaluate(&Case::alone());
    assert_eq!(alone.losses.len(), 24 * LENGTH as usize);
    for case in Case::all().iter().step_by(4) {
        let found = evaluate(case);
        assert_eq!(found.tokens, alone.tokens);
        assert!(
            (found.loss - alone.loss).abs() < 1e-5 * alone.loss,
            "{case}"
        );
        for (actual, expected) in found.losses.iter().zip(&alone.losses) {
            assert!(
                (actual - expected).abs() < 1e-4,
                "{case}: {actual} {expected}"
            );
        }
    }
}
