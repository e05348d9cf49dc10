//! Schedules do everything once and come to an end, for every size; broken ones are told apart.

use super::*;
use proptest::prelude::*;

/// Every schedule of this size.
fn all(stages: usize, chunks: usize, micro_batches: usize) -> Vec<Schedule> {
    vec![
        Schedule::gpipe(stages, micro_batches).unwrap(),
        Schedule::one_forward_one_backward(stages, micro_batches).unwrap(),
        Schedule::interleaved(stages, chunks, micro_batches).unwrap(),
    ]
}

fn text(actions: &[Action]) -> String {
    let letter = |action: &Action| match action.work {
        Work::Forward => format!("F{}{}", action.micro_batch, "'".repeat(action.chunk)),
        Work::Backward => format!("B{}{}", action.micro_batch, "'".repeat(action.chunk)),
    };
    actions.iter().map(letter).collect::<Vec<_>>().join(" ")
}

/// Plays a schedule one action at a time, whichever stage can go on, with a mailbox for each message: nothing is shared with `play`.
fn runs_to_the_end(schedule: &Schedule) -> bool {
    let parts = schedule.parts();
    let mut done = vec![0; schedule.stages.len()];
    let mut activations = vec![vec![false; schedule.micro_batches]; parts + 1];
    let mut gradients = vec![vec![false; schedule.micro_batches]; parts + 1];
    activations[0].fill(true);
    loop {
        let mut moved = false;
        for (stage, actions) in schedule.stages.iter().enumerate() {
            let Some(action) = actions.get(done[stage]) else {
                continue;
            };
            let (part, micro_batch) = (schedule.part(stage, action.chunk), action.micro_batch);
            let (from, to) = match action.work {
                Work::Forward => (&mut activations, (part, part + 1)),
                Work::Backward => (&mut gradients, (part + 1, part)),
            };
            // A message is received once.
            if std::mem::take(&mut from[to.0][micro_batch]) {
                from[to.1][micro_batch] = true;
                if to.1 == parts {
                    gradients[parts][micro_batch] = true;
                }
                done[stage] += 1;
                moved = true;
            }
        }
        if !moved {
            return gradients[0].iter().all(|there| *there)
                && schedule.stages.iter().map(Vec::len).eq(done);
        }
    }
}

#[test]
fn one_forward_one_backward_is_the_known_order() {
    let schedule = Schedule::one_forward_one_backward(3, 4).unwrap();
    let stages: Vec<String> = schedule.stages.iter().map(|stage| text(stage)).collect();
    assert_eq!(
        stages,
        [
            "F0 F1 F2 B0 F3 B1 B2 B3",
            "F0 F1 B0 F2 B1 F3 B2 B3",
            "F0 B0 F1 B1 F2 B2 F3 B3"
        ]
    );
    assert_eq!(schedule.peaks(), [3, 2, 1]);
}

#[test]
fn interleaved_stages_go_through_all_chunks_of_a_group_first() {
    let schedule = Schedule::interleaved(2, 2, 4).unwrap();
    let stages: Vec<String> = schedule.stages.iter().map(|stage| text(stage)).collect();
    assert_eq!(
        stages,
        [
            "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3",
            "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3"
        ]
    );
}

#[test]
fn every_small_schedule_runs_to_the_end() {
    for stages in 1..=7 {
        for chunks in 1..=4 {
            for micro_batches in 1..=2 * stages + 3 {
                for schedule in all(stages, chunks, micro_batches) {
                    let size = (stages, chunks, micro_batches);
                    schedule.check().unwrap_or_else(|e| panic!("{size:?}: {e}"));
                    assert!(runs_to_the_end(&schedule), "{size:?}");
                }
            }
        }
    }
}

#[test]
fn sizes_without_a_schedule_are_refused() {
    for (stages, chunks, micro_batches) in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (usize::MAX, 2, 2)] {
        let refused = Schedule::interleaved(stages, chunks, micro_batches);
        assert!(matches!(refused, Err(Error::Schedule { .. })));
    }
    assert_eq!(
        Schedule::gpipe(1 << 11, 1 << 11).unwrap_err().to_string(),
        "there is no schedule of 2048 micro-batches over 2048 stages of 1 chunks: that is more than 4194304 actions"
    );
}

#[test]
fn what_is_wrong_with_a_schedule_is_named() {
    let good = Schedule::one_forward_one_backward(2, 2).unwrap();
    let message = |change: &dyn Fn(&mut Schedule)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad.check().unwrap_err().to_string()
    };
    let missing = message(&|bad| bad.stages[1].truncate(3));
    assert_eq!(missing, "stage 1 never does `backward 1`");
    let twice = message(&|bad| bad.stages[0][1] = bad.stages[0][0]);
    assert_eq!(twice, "stage 0 does `forward 0` twice");
    let unknown = message(&|bad| bad.stages[0][1].chunk = 1);
    assert_eq!(unknown, "stage 0 has no `forward 1, chunk 1` to do");
    // Stage 0 wants the gradient of 0 before it gives anything.
    let stuck = message(&|bad| bad.stages[0].rotate_right(1));
    assert_eq!(
        stuck,
        "the schedule stops: stage 0 waits for the input of `backward 1`, stage 1 waits for the input of `forward 0`"
    );
}

proptest! {
    #[test]
    fn large_schedules_run_to_the_end_and_keep_few_activations(
        stages in 1_usize..24, chunks in 1_usize..7, micro_batches in 1_usize..80,
    ) {
        for schedule in all(stages, chunks, micro_batches) {
            schedule.check().unwrap();
            prop_assert!(runs_to_the_end(&schedule));
        }
        let plain = Schedule::one_forward_one_backward(stages, micro_batches).unwrap();
        let expected: Vec<usize> =
            (0..stages).map(|stage| (stages - stage).min(micro_batches)).collect();
        prop_assert_eq!(plain.peaks(), expected);
        let interleaved = Schedule::interleaved(stages, chunks, micro_batches).unwrap();
        let group = micro_batches.div_ceil((micro_batches / stages).max(1));
        let bound = (2 * stages - 1 + (chunks - 1) * group).min(chunks * micro_batches);
        prop_assert!(interleaved.peaks().iter().all(|peak| *peak <= bound));
    }

    #[test]
    fn check_agrees_with_running_any_order(
        stages in 1_usize..4, micro_batches in 1_usize..4, swaps in prop::collection::vec(any::<[usize; 3]>(), 0..6),
    ) {
        let mut schedule = Schedule::interleaved(stages, 2, micro_batches).unwrap();
        for [stage, left, right] in swaps {
            let actions = &mut schedule.stages[stage % stages];
            let len = actions.len();
            actions.swap(left % len, right % len);
        }
        prop_assert_eq!(schedule.check().is_ok(), runs_to_the_end(&schedule));
    }

    #[test]
    fn outputs_and_inputs_are_two_ends_of_the_same(
        stages in 1_usize..5, chunks in 1_usize..4, micro_batches in 1_usize..6,
    ) {
        let schedule = Schedule::interleaved(stages, chunks, micro_batches).unwrap();
        for stage in 0..stages {
            for &action in &schedule.stages[stage] {
                if let Some((to, next)) = schedule.output(stage, action) {
                    prop_assert_eq!(schedule.input(to, next), Some((stage, action)));
                }
            }
        }
    }
}
