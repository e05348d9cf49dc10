//! Simulated times against formulas, against published numbers, and against what no order can beat.

use super::*;
use proptest::prelude::*;

fn bubble(schedule: &Schedule, forward: f64, backward: f64, send: f64) -> f64 {
    let chunks = schedule.chunks as f64;
    let costs = Costs::equal(schedule.parts(), forward / chunks, backward / chunks, send);
    simulate(schedule, &costs).unwrap().bubble_share()
}

#[test]
fn profiled_models_have_the_bubbles_that_were_published_for_them() {
    // Eight stages; micro-batches, microseconds of a forward, of a backward, and of a message; bubble of 1F1B, of interleaved with some chunks.
    let published = [
        (24, 18522.0, 18086.0 + 9337.0, 601.0, 0.2431, 0.1090, 3),
        (32, 18513.0, 18086.0 + 9331.0, 626.0, 0.1985, 0.0847, 3),
        (64, 18546.0, 18097.0 + 9321.0, 762.0, 0.1240, 0.0461, 3),
        (24, 29718.0, 29444.0 + 19927.0, 527.0, 0.2347, 0.0827, 4),
        (32, 29802.0, 29428.0 + 19530.0, 577.0, 0.1898, 0.0644, 4),
        (64, 29935.0, 29621.0 + 19388.0, 535.0, 0.1091, 0.0328, 4),
    ];
    for (micro_batches, forward, backward, send, plain, interleaved, chunks) in published {
        let schedule = Schedule::one_forward_one_backward(8, micro_batches).unwrap();
        let share = bubble(&schedule, forward, backward, send);
        assert!((share - plain).abs() < 5e-5, "{share} for {plain}");
        let schedule = Schedule::interleaved(8, chunks, micro_batches).unwrap();
        let share = bubble(&schedule, forward, backward, send);
        assert!(
            (share - interleaved).abs() < 5e-5,
            "{share} for {interleaved}"
        );
    }
}

#[test]
fn costs_that_make_no_sense_are_refused() {
    let schedule = Schedule::gpipe(2, 1).unwrap();
    let refuse = |costs: Costs| simulate(&schedule, &costs).unwrap_err().to_string();
    assert_eq!(
        refuse(Costs::equal(3, 1.0, 1.0, 0.0)),
        "3 costs do not fit the 2 parts of the model"
    );
    assert_eq!(
        refuse(Costs::equal(2, 1.0, 1.0, -1.0)),
        "a send cannot cost -1"
    );
    assert_eq!(
        refuse(Costs::equal(2, 1.0, f64::NAN, 0.0)),
        "the backward of part 0 cannot cost NaN"
    );
}

#[test]
fn a_pipeline_that_takes_no_time_is_never_idle() {
    let schedule = Schedule::gpipe(3, 2).unwrap();
    assert_eq!(bubble(&schedule, 0.0, 0.0, 0.0), 0.0);
}

proptest! {
    #[test]
    fn equal_stages_have_the_bubble_of_the_formula(
        stages in 1_usize..12, chunks in 1_usize..5, micro_batches in 1_usize..50,
        forward in 1_u32..9, backward in 1_u32..9,
    ) {
        let [forward, backward] = [forward, backward].map(f64::from);
        let (p, m) = (stages as f64, micro_batches as f64);
        let formula = |chunks: f64| ((p - 1.0) / chunks) / (m + (p - 1.0) / chunks);
        for schedule in [
            Schedule::gpipe(stages, micro_batches),
            Schedule::one_forward_one_backward(stages, micro_batches),
        ] {
            let share = bubble(&schedule.unwrap(), forward, backward, 0.0);
            prop_assert!((share - formula(1.0)).abs() < 1e-9);
        }
        let interleaved = Schedule::interleaved(stages, chunks, micro_batches).unwrap();
        let share = bubble(&interleaved, forward, backward, 0.0);
        if micro_batches >= stages {
            prop_assert!((share - formula(chunks as f64)).abs() < 1e-9, "{} for {}", share, formula(chunks as f64));
        } else {
            // Too few to fill the pipeline: more chunks help less, and never harm.
            prop_assert!(share < formula(1.0) + 1e-9);
        }
    }

    #[test]
    fn nothing_overlaps_and_nothing_starts_before_its_input(
        stages in 1_usize..6, chunks in 1_usize..4, micro_batches in 1_usize..12,
        costs in prop::collection::vec(0_u32..20, 36), send in 0_u32..5,
    ) {
        let schedule = Schedule::interleaved(stages, chunks, micro_batches).unwrap();
        let cost = |index: usize| f64::from(costs[index]);
        let costs = Costs {
            forward: (0..schedule.parts()).map(cost).collect(),
            backward: (0..schedule.parts()).map(|part| cost(18 + part)).collect(),
            send: f64::from(send),
        };
        let timeline = simulate(&schedule, &costs).unwrap();
        for (stage, spans) in timeline.stages.iter().enumerate() {
            prop_assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
            for span in spans {
                let Some((from, input)) = schedule.input(stage, span.action) else { continue };
                let input = timeline.stages[from].iter().find(|other| other.action == input).unwrap();
                let way = if from == stage { 0.0 } else { costs.send };
                prop_assert!(input.end + way <= span.start);
            }
            // A stage cannot be done sooner than it works, nor the whole sooner than one micro-batch goes through.
            prop_assert!(timeline.busy(stage) <= timeline.total);
        }
        let through: f64 = costs.forward.iter().chain(&costs.backward).sum();
        prop_assert!(through <= timeline.total);
        prop_assert!((0.0..=1.0).contains(&timeline.bubble_share()));
    }
}
