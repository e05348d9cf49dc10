//! A run goes on where it was, on any layout.

use crate::support::{
    Case, Model, VOCABULARY, assert_close, assert_same, data, stoppable, train, trainer,
};
use cairn_checkpoint::{Checkpointer, SharedSource, World, ema};
use cairn_store::{Memory, PutMode, Store};
use cairn_train::{Ending, Event, Progress, weights};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Steps of a run, and when it is saved.
const STEPS: u64 = 10;
const SAVED: u64 = 5;

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

/// A run like the one in `store`, with a store of its own.
fn copy(store: &Arc<dyn Store>) -> Result<Arc<dyn Store>, cairn_store::Error> {
    let copy = memory();
    for object in store.list("")? {
        copy.put(&object.key, &store.get(&object.key)?, PutMode::Create)?;
    }
    Ok(copy)
}

#[test]
fn what_one_layout_saved_another_goes_on_with() {
    let model = Model::decoder("Qwen3ForCausalLM", true, 0.1);
    let whole = train(&Case::alone(), &model, None, (STEPS, STEPS));
    let (first, rest) = whole.split_at(5);
    let cases = Case::all();
    for turn in 0..cases.len() {
        // A stride that has nothing in common with their number crosses all with all others.
        let (source, target) = (&cases[turn], &cases[(17 * turn + 5) % cases.len()]);
        let store = memory();
        let before = train(source, &model, Some(&store), (SAVED, STEPS));
        assert_close(source, &before, first);
        let again = copy(&store).unwrap();

        let after = train(target, &model, Some(&store), (STEPS, STEPS));
        assert_close(target, &after, rest);
        // Another stop in between changes no bit.
        let mut parts = train(target, &model, Some(&again), (SAVED + 2, STEPS));
        parts.extend(train(target, &model, Some(&again), (STEPS, STEPS)));
        assert_same(target, &parts, &after);
    }
}

#[test]
fn the_place_in_the_data_is_one_number_for_all_layouts() {
    let model = Model::decoder("LlamaForCausalLM", false, 0.0);
    let store = memory();
    train(&Case::new("dp=4", 1, 3), &model, Some(&store), (3, STEPS));
    let case = Case::new("pp=2,tp=2", 0, 2);
    let all = case.run(|world| {
        let mut trainer = trainer(case.settings(STEPS), world, &model, Some(&store))?;
        assert_eq!(trainer.resume()?.map(|resumed| resumed.step), Some(3));
        Ok(trainer.progress().clone())
    });
    let expected = Progress {
        step: 3,
        consumed_samples: 36,
        consumed_tokens: 252,
        seed: 5,
        ..Progress::default()
    };
    assert_eq!(all.unwrap(), vec![expected; 4]);
}

#[test]
fn a_new_run_begins_with_the_weights_of_another() {
    let model = Model::decoder("Qwen3ForCausalLM", true, 0.0);
    let (store, source) = (memory(), Case::new("pp=2,dp=2", 3, 1));
    let trained = source.run(|world| {
        let mut trainer = trainer(source.settings(3), world, &model, Some(&store))?;
        trainer.run(&mut |_, _| Ok(()))?;
        trainer.evaluate(data(VOCABULARY).as_mut(), 1)
    });
    let target = Case::new("tp=2,dp=2", 1, 1);
    let begun = target.run(|world| {
        let mut trainer = trainer(target.settings(3), world, &model, None)?;
        let run = Checkpointer::new(store.clone(), World::single());
        trainer.load_weights(&(Arc::new(run.open(3)?) as _))?;
        assert_eq!(trainer.progress().step, 0);
        trainer.evaluate(data(VOCABULARY).as_mut(), 1)
    });
    let (trained, begun) = (trained.unwrap()[0].loss, begun.unwrap()[0].loss);
    assert!(
        (begun - trained).abs() < 1e-5 * trained,
        "{begun} {trained}"
    );
}

#[test]
fn all_ranks_stop_after_the_same_step_when_one_is_asked_to() {
    let model = Model::decoder("LlamaForCausalLM", false, 0.0);
    let (store, case) = (memory(), Case::new("dp=2,pp=2", 2, 2));
    let whole = train(&Case::alone(), &model, None, (STEPS, STEPS));
    let all = case.run(|world| {
        let stop = Arc::new(AtomicBool::new(false));
        let is_asked = world.rank() == 3;
        let settings = case.settings(STEPS);
        let mut trainer = stoppable(settings, world, &model, Some(&store), stop.clone())?;
        let ending = trainer.run(&mut |_, event| {
            if let Event::Step(report) = event {
                stop.store(is_asked && report.step >= 3, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok((ending, trainer.progress().step))
    });
    assert_eq!(all.unwrap(), [(Ending::Stopped, 4); 4]);
    let rest = train(
        &Case::new("tp=2", 0, 1),
        &model,
        Some(&store),
        (STEPS, STEPS),
    );
    assert_close(&case, &rest, &whole[4..]);
}

#[test]
fn old_steps_go_as_the_settings_say() {
    let model = Model::decoder("LlamaForCausalLM", false, 0.0);
    let (store, case) = (memory(), Case::new("dp=2", 1, 1));
    let ran = case.run(|world| {
        let mut settings = case.settings(9);
        settings.checkpoints.every = Some(1);
        settings.checkpoints.keep_last = Some(2);
        settings.checkpoints.keep_every = Some(4);
        trainer(settings, world, &model, Some(&store))?.run(&mut |_, _| Ok(()))
    });
    assert_eq!(ran.unwrap(), [Ending::Finished; 2]);
    let steps = cairn_checkpoint::all_steps(store.as_ref()).unwrap();
    assert_eq!(steps, [4, 8, 9]);
}

#[test]
fn a_run_that_is_over_stays_as_it_is() {
    let model = Model::decoder("LlamaForCausalLM", false, 0.0);
    let (store, case) = (memory(), Case::new("dp=2", 0, 1));
    train(&case, &model, Some(&store), (2, 2));
    assert!(train(&case, &model, Some(&store), (2, 2)).is_empty());
}

#[test]
fn the_average_of_the_weights_goes_on_on_any_layout() {
    let model = Model::decoder("Qwen3ForCausalLM", true, 0.0);
    let average = |sessions: &[(Case, u64)]| {
        let store = memory();
        for (case, until) in sessions {
            let ran = case.run(|world| {
                let mut settings = case.settings(4);
                settings.checkpoints.ema = Some(0.5);
                let mut trainer = trainer(settings, world, &model, Some(&store))?;
                trainer.resume()?;
                while trainer.progress().step < *until {
                    trainer.step()?;
                }
                trainer.finish()
            });
            ran.unwrap_or_else(|error| panic!("{case}: {error}"));
        }
        let run = Checkpointer::new(store, World::single());
        let step: SharedSource = Arc::new(run.open(4).unwrap());
        let values = run.open(4).unwrap().values().clone();
        let averaged: SharedSource = Arc::new(ema::averaged(step, &values, "0.5").unwrap());
        weights::whole(&averaged, &model.alone()).unwrap()
    };
    let expected = average(&[(Case::alone(), 4)]);
    let actual = average(&[
        (Case::new("pp=2,dp=2", 3, 1), 2),
        (Case::new("tp=2,dp=2", 1, 1), 4),
    ]);
    for (actual, expected) in actual.iter().flatten().zip(expected.iter().flatten()) {
        assert!((actual - expected).abs() < 1e-4, "{actual} {expected}");
    }
}
