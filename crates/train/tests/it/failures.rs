//! What happens when something fails: a clear end, or recovery, and the last good step loads.

use crate::support::{Case, Model, assert_close, train, trainer};
use crate::toy::{self, Fault};
use cairn_checkpoint::{Checkpointer, World};
use cairn_collectives::threads;
use cairn_store::testing::{self, FlakyStore, Operation, Rule};
use cairn_store::{Memory, PutMode, Store};
use cairn_train::{Error, Event, weights};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

#[test]
fn layouts_that_cannot_be_are_refused_with_all_reasons() {
    let mut case = Case::new("dp=5,pp=2", 4, 1);
    case.parallel.chunks = 4;
    let run = threads::run(4, threads::Options::default(), |world| {
        trainer(case.settings(1), world, &toy::model(), None).map(drop)
    });
    let message = run.unwrap_err().to_string();
    for part in [
        "`dp=5,pp=2` has 10 ranks, but there are 4",
        "`zero` is 4",
        "a batch of 12 sequences",
        "a model of 5 blocks cannot be cut in 8 parts",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_rank_that_hangs_is_named_by_the_others() {
    let seen = Arc::new(AtomicBool::new(false));
    let model = toy::faulty(2, 1..2, Fault::Hangs(seen.clone()));
    let case = Case::new("dp=4", 0, 1);
    let options = threads::Options {
        timeout: Duration::from_secs(3),
    };
    let run = threads::run(4, options, |world| {
        let mut trainer = trainer(case.settings(3), world, &model, None)?;
        let ended = (0..3).try_for_each(|_| trainer.step().map(drop));
        seen.store(true, Ordering::Relaxed);
        ended
    });
    let message = run.unwrap_err().to_string();
    assert!(message.contains("for ranks [2]"), "{message}");
}

#[test]
fn a_rank_that_panics_ends_all_and_the_last_step_is_good() {
    let store = memory();
    // Rank 3 has the last blocks for the second half of the data.
    let model = toy::faulty(3, 3..4, Fault::Panics);
    let case = Case::new("pp=2,dp=2", 1, 2);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        case.run(|world| {
            let mut settings = case.settings(6);
            settings.checkpoints.every = Some(2);
            trainer(settings, world, &model, Some(&store))?.run(&mut |_, _| Ok(()))
        })
    }));
    let panic = ended.expect_err("nobody goes on");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the block was told to"));
    let whole = train(&Case::alone(), &toy::model(), None, (6, 6));
    let rest = train(
        &Case::new("dp=3", 3, 1),
        &toy::model(),
        Some(&store),
        (6, 6),
    );
    assert_close(&case, &rest, &whole[2..]);
}

#[test]
fn a_rank_whose_block_fails_ends_all_at_once_with_its_reason() {
    for zero in [0, 3] {
        let model = toy::faulty(3, 1..2, Fault::Fails);
        let case = Case::new("dp=2,pp=2", zero, 2);
        let begun = Instant::now();
        let ended = case.run(|world| {
            let mut trainer = trainer(case.settings(3), world, &model, None)?;
            (0..3).try_for_each(|_| trainer.step().map(drop))
        });
        let message = ended.unwrap_err().to_string();
        assert!(message.contains("99"), "{message}");
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn steps_that_are_not_finite_change_nothing_on_any_rank() {
    let case = Case::new("dp=2,pp=2", 2, 1);
    // Rank 1 has the last blocks for the first half of the data.
    let model = toy::faulty(1, 2..4, Fault::GivesNaN);
    let reports = train(&case, &model, None, (6, 6));
    let skipped: Vec<bool> = reports.iter().map(|report| report.skipped).collect();
    assert_eq!(skipped, [false, false, true, true, false, false]);
    assert!(reports[2].loss.is_nan() && reports[4].loss.is_finite());
}

#[test]
fn a_loss_that_is_not_finite_skips_the_step_even_if_gradients_are() {
    let after = |model: &Model| {
        let case = Case::new("dp=2,pp=2", 2, 1);
        let store = memory();
        let reports = train(&case, model, Some(&store), (4, 4));
        let run = Checkpointer::new(store, World::single());
        let weights = weights::whole(&(Arc::new(run.open(4).unwrap()) as _), &model.alone());
        (reports, weights.unwrap())
    };
    // Rank 1 has the last blocks for the first half of the data.
    let (loss, weights) = after(&toy::faulty_loss(1, 1..3, Fault::GivesNaN));
    assert!(loss[1].loss.is_nan() && loss[1].gradient_norm.is_finite());
    let skipped: Vec<bool> = loss.iter().map(|report| report.skipped).collect();
    assert_eq!(skipped, [false, true, true, false]);
    // As if it had been the gradients.
    let (gradients, expected) = after(&toy::faulty(1, 1..3, Fault::GivesNaN));
    assert!(gradients[1].gradient_norm.is_nan());
    assert_eq!(weights, expected);
}

#[test]
fn too_many_steps_that_are_not_finite_end_the_run() {
    let case = Case::new("dp=2", 0, 1);
    for model in [
        toy::faulty(0, 1..9, Fault::GivesNaN),
        toy::faulty_loss(0, 1..9, Fault::GivesNaN),
    ] {
        let run = case.run(|world| {
            let mut settings = case.settings(9);
            settings.max_skipped = 2;
            trainer(settings, world, &model, None)?.run(&mut |_, _| Ok(()))
        });
        match run.unwrap_err() {
            Error::NotFinite { step, skipped } => assert_eq!((step, skipped), (4, 3)),
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_disk_costs_a_checkpoint_and_no_step() {
    let flaky = Arc::new(FlakyStore::new(Memory::new()));
    let full = Rule::new(
        [Operation::Create, Operation::Write, Operation::Put],
        testing::Fault::NO_SPACE,
    );
    flaky.add(full.on(&cairn_checkpoint::step_folder(4)));
    let store: Arc<dyn Store> = flaky.clone();
    let case = Case::new("dp=2", 1, 1);
    let all = case.run(|world| {
        let mut settings = case.settings(7);
        settings.checkpoints.every = Some(2);
        let mut told = Vec::new();
        let mut trainer = trainer(settings, world, &toy::model(), Some(&store))?;
        trainer.run(&mut |_, event| {
            match event {
                Event::Saving { step, .. } => told.push(format!("saving {step}")),
                Event::SaveFailed { step, .. } => told.push(format!("failed {step}")),
                Event::Step(_) => {}
            }
            Ok(())
        })?;
        Ok(told)
    });
    for told in all.unwrap() {
        assert_eq!(told, ["saving 2", "saving 4", "failed 4", "saving 6"]);
    }
    flaky.clear();
    let run = Checkpointer::new(store, World::single());
    assert_eq!(run.steps().unwrap(), [2, 6, 7]);
}

#[test]
fn a_disk_that_stays_full_is_an_error_at_the_end() {
    let flaky = Arc::new(FlakyStore::new(Memory::new()));
    flaky.add(Rule::new(
        [Operation::Create, Operation::Write],
        testing::Fault::NO_SPACE,
    ));
    let store: Arc<dyn Store> = flaky;
    let case = Case::new("dp=2", 0, 1);
    let run = case.run(|world| {
        trainer(case.settings(2), world, &toy::model(), Some(&store))?.run(&mut |_, _| Ok(()))
    });
    assert!(matches!(run.unwrap_err(), Error::Save { step: 2, .. }));
}

#[test]
fn a_damaged_step_is_passed_over_by_all_ranks_and_replaced() {
    let flaky = Arc::new(FlakyStore::new(Memory::new()));
    let store: Arc<dyn Store> = flaky.clone();
    let model = toy::model();
    let whole = train(&Case::alone(), &model, None, (4, 4));
    train(&Case::new("dp=2", 1, 1), &model, Some(&store), (2, 4));
    train(&Case::new("dp=2", 1, 1), &model, Some(&store), (3, 4));
    let last = data_of(&store, 3);
    let flip = testing::Fault::FlipBit {
        offset: 1000,
        bit: 3,
    };
    flaky.add(Rule::new([Operation::Read], flip).on(&last));
    let case = Case::new("pp=2", 0, 2);
    let all = case.run(|world| {
        let mut trainer = trainer(case.settings(4), world, &model, Some(&store))?;
        let resumed = trainer.resume()?.expect("there are steps");
        assert_eq!(resumed.step, 2);
        assert!(resumed.skipped[0].1.contains("damaged"), "{resumed:?}");
        let third = trainer.step()?;
        trainer.finish()?;
        Ok(third)
    });
    assert_close(&case, &all.unwrap()[..1], &whole[2..3]);
    flaky.clear();
    let rest = train(&case, &model, Some(&store), (4, 4));
    assert_close(&case, &rest, &whole[3..]);
}

/// The data file of a step that was written last, by name.
fn data_of(store: &Arc<dyn Store>, step: u64) -> String {
    let data = store
        .list("")
        .expect("a list")
        .into_iter()
        .map(|object| object.key);
    let data = data.filter(|key| {
        key.contains(&cairn_checkpoint::step_folder(step)) && key.ends_with(".safetensors")
    });
    data.max().expect("there is data")
}

/// The objects of a step.
fn objects_of(store: &Arc<dyn Store>, step: u64) -> Vec<(String, Vec<u8>)> {
    let objects = store.list(&cairn_checkpoint::step_folder(step));
    let objects = objects.expect("a list");
    let object = |key: String| (key.clone(), store.get(&key).expect("an object"));
    objects.into_iter().map(|found| object(found.key)).collect()
}

#[test]
fn a_step_that_cannot_be_read_for_now_ends_the_launch_and_stays_as_it_is() {
    let flaky = Arc::new(FlakyStore::new(Memory::new()));
    let store: Arc<dyn Store> = flaky.clone();
    let model = toy::model();
    let whole = train(&Case::alone(), &model, None, (4, 4));
    train(&Case::new("dp=2", 1, 1), &model, Some(&store), (2, 4));
    train(&Case::new("dp=2", 1, 1), &model, Some(&store), (3, 4));
    let before = objects_of(&store, 3);
    let case = Case::new("pp=2", 0, 2);
    let (data, commit) = (data_of(&store, 3), "step-00000003/COMMIT".to_string());
    for (fault, file, told) in [
        (testing::Fault::DENIED, &data, "permission denied"),
        (testing::Fault::TIMED_OUT, &data, "timed out"),
        (testing::Fault::IO, &commit, "error"),
    ] {
        flaky.add(Rule::new([Operation::Open, Operation::Read], fault).on(file));
        let run = case.run(|world| {
            let mut trainer = trainer(case.settings(4), world, &model, Some(&store))?;
            trainer.resume()?;
            trainer.run(&mut |_, _| Ok(()))
        });
        flaky.clear();
        let error = run.unwrap_err();
        let text = cairn_checkpoint::chain(&error).to_lowercase();
        assert!(text.contains(told), "{text}");
        if file == &data {
            assert!(
                matches!(error, Error::CannotResume { step: 3, .. }),
                "{text}"
            );
            let hint = error.hint().expect("something can be done");
            assert!(hint.contains("does not go back"), "{hint}");
        }
        assert_eq!(objects_of(&store, 3), before);
        assert_eq!(
            Checkpointer::new(store.clone(), World::single())
                .steps()
                .unwrap(),
            [2, 3]
        );
    }
    let rest = train(&case, &model, Some(&store), (4, 4));
    assert_close(&case, &rest, &whole[3..]);
}

#[test]
fn a_step_whose_commit_is_damaged_is_replaced_and_no_other() {
    let store = memory();
    let model = toy::model();
    let case = Case::new("dp=2", 1, 1);
    for step in 1..=4 {
        train(&case, &model, Some(&store), (step, 6));
    }
    let key = "step-00000004/COMMIT";
    let mut bytes = store.get(key).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    store.put(key, &bytes, PutMode::Replace).unwrap();
    let before: Vec<_> = (1..=3).map(|step| objects_of(&store, step)).collect();
    train(&case, &model, Some(&store), (4, 6));
    let after: Vec<_> = (1..=3).map(|step| objects_of(&store, step)).collect();
    assert_eq!(before, after);
    let run = Checkpointer::new(store.clone(), World::single());
    assert_eq!(run.latest().unwrap().checkpoint.step(), 4);
    assert!(run.latest().unwrap().skipped.is_empty());
}

#[test]
fn data_that_cannot_be_read_ends_all_ranks_and_is_named() {
    let case = Case::new("dp=2", 0, 1);
    let run = case.run(|world| {
        let mut trainer = trainer(case.settings(2), world, &toy::model(), None)?;
        trainer.evaluate(&mut |_| Err("`corpus.tokens` is cut short"), 1)
    });
    let error = run.unwrap_err();
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(matches!(error, Error::Data { .. }), "{error}");
    assert_eq!(cause.as_deref(), Some("`corpus.tokens` is cut short"));
}
