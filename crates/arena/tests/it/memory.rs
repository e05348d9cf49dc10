//! What ranks share out, they save.

use crate::common::{HYPER, options, parameter};
use crate::steps::alone;
use cairn_arena::{Arena, Bucket, Error, Groups, Stage, Usage};
use cairn_collectives::threads;
use cairn_tensor::DType;

const BUCKETS: usize = 12;
const LEN: u64 = 4000;
const RANKS: u64 = 4;

/// What a rank takes after two steps of two micro-batches each.
fn usage(stage: Stage) -> Usage {
    let usages = threads::run(RANKS as usize, threads::Options::default(), |world| {
        let bucket = |index| {
            let one = parameter(&format!("p{index}"), &[LEN as usize], None);
            Bucket::new(vec![one], 0, 1)
        };
        let groups = Groups {
            world: world.clone(),
            dp: world,
            tp: alone(),
            tied: None,
        };
        let buckets = (0..BUCKETS).map(bucket).collect();
        let mut arena = Arena::new(buckets, groups, options(stage, DType::Bf16))?;
        for _ in 0..2 {
            for last in [false, true] {
                for bucket in (0..BUCKETS).rev() {
                    arena.prefetch(bucket.saturating_sub(1));
                    arena.weights_and_gradients(bucket)?.1.fill(1.0);
                    arena.release(bucket);
                    arena.ready(bucket, last)?;
                }
            }
            arena.step(&HYPER)?;
        }
        Ok::<_, Error>(arena.usage())
    });
    usages.unwrap().remove(0)
}

#[test]
fn each_stage_takes_less_memory_than_the_one_before() {
    let stages = [
        Stage::Nothing,
        Stage::Optimizer,
        Stage::Gradients,
        Stage::Parameters,
    ];
    let [none, optimizer, gradients, parameters] = stages.map(usage);
    let all = BUCKETS as u64 * LEN;

    assert_eq!(
        (none.parameters, none.masters, none.moments),
        (2 * all, 4 * all, 8 * all)
    );
    assert!(none.passes >= 4 * all, "all gradients");
    assert!(none.passes <= 4 * (all + 4 * LEN));

    let state = |usage: &Usage| (usage.masters, usage.moments);
    assert_eq!(optimizer.parameters, none.parameters);
    assert_eq!(state(&optimizer), (all, 2 * all), "a quarter");

    assert_eq!(
        (gradients.parameters, state(&gradients)),
        (2 * all, state(&optimizer))
    );
    let in_flight = 8 * LEN;
    assert!(
        gradients.passes <= 4 * (all / RANKS + in_flight),
        "{gradients:?}"
    );

    assert_eq!(
        (parameters.parameters, state(&parameters)),
        (all / 2, state(&optimizer))
    );
    assert!(
        parameters.passes <= 4 * (all / RANKS + in_flight),
        "{parameters:?}"
    );
    assert!(parameters.total() < gradients.total() && gradients.total() < optimizer.total());
}
