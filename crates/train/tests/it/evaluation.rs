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

#[test]
fn every_layout_predicts_the_same_logits_in_the_order_of_the_data() {
    let model = Model::decoder("Qwen3ForCausalLM", true, 0.5);
    let predict = |case: &Case| {
        let all = case.run(|world| {
            let mut trainer = trainer(case.settings(4), world, &model, None)?;
            trainer.step()?;
            let losses = trainer.evaluate(data(VOCABULARY).as_mut(), 1)?.losses;
            Ok((trainer.predict(data(VOCABULARY).as_mut(), 0)?, losses))
        });
        let mut all = all.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(all.iter().all(|one| *one == all[0]), "{case}");
        all.swap_remove(0)
    };
    let (alone, losses) = predict(&Case::alone());
    let tokens = LENGTH as usize;
    assert_eq!(alone.lengths, [tokens; 12]);
    assert_eq!(alone.width, VOCABULARY as usize);
    // They are the logits that losses are made of.
    let batch = data(VOCABULARY).batch(0..12).expect("data");
    let rows = alone.outputs.chunks(alone.width).zip(&batch.targets);
    for ((logits, target), loss) in rows.zip(&losses) {
        let Ok(target) = usize::try_from(*target) else {
            continue;
        };
        let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        let expected = sum.ln() - f64::from(logits[target]);
        assert!(
            (f64::from(*loss) - expected).abs() < 1e-4,
            "{loss} {expected}"
        );
    }
    for case in Case::all().iter().skip(1).step_by(4) {
        let (found, _) = predict(case);
        assert_eq!((&found.lengths, found.width), (&alone.lengths, alone.width));
        for (actual, expected) in found.outputs.iter().zip(&alone.outputs) {
            assert!(
                (actual - expected).abs() < 1e-3,
                "{case}: {actual} {expected}"
            );
        }
    }
}
