//! Ranks as threads: what all communicators promise, and what happens when one rank does not do its part.

mod messages;

use cairn_collectives::{Background, Communicator, Error, testing, threads};
use cairn_tensor::{DType, ReduceOp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Group = Arc<dyn Communicator>;

fn options(timeout: Duration) -> threads::Options {
    threads::Options { timeout }
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);

#[test]
fn threads_keep_every_promise() {
    testing::conformance(&|size, body| {
        threads::run(size, options(LONG), |group: Group| {
            body(&group);
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

#[test]
fn a_missing_rank_is_named_and_nobody_hangs() {
    let start = Instant::now();
    let failed = threads::run(3, options(SHORT), |group| {
        if group.rank() == 1 {
            // It hangs, as far as the others can tell.
            std::thread::sleep(3 * SHORT);
            return Ok(());
        }
        group.barrier()
    });
    let text = failed.unwrap_err().to_string();
    assert_eq!(text, "`barrier(0)` waited 0.1 s for ranks [1]");
    assert!(start.elapsed() < LONG);
}

#[test]
fn a_rank_that_fails_fails_the_others_at_once() {
    let start = Instant::now();
    let failed = threads::run(3, options(LONG), |group| match group.rank() {
        2 => Err("the disk is full".to_string()),
        _ => {
            let pair = group.split(0, 0).map_err(|error| error.to_string());
            pair.and_then(|pair| pair.barrier().map_err(|error| error.to_string()))
        }
    });
    assert_eq!(failed.unwrap_err(), "the disk is full");
    assert!(start.elapsed() < LONG / 2);
}

#[test]
fn a_rank_that_panics_ends_calls_of_every_group() {
    let seen = std::sync::Mutex::new(Vec::new());
    let panic = catch_unwind(AssertUnwindSafe(|| {
        threads::run(4, options(LONG), |group| {
            let half = group.split((group.rank() / 2) as u64, 0)?;
            half.barrier()?;
            assert!(group.rank() != 3, "rank 3 breaks");
            // Ranks 0 and 1 wait in a group that rank 3 has never been in, or in the world.
            let error = loop {
                if let Err(error) = half.barrier() {
                    break error;
                }
                if let Err(error) = group.barrier() {
                    break error;
                }
            };
            seen.lock().unwrap().push(error.to_string());
            Err(error)
        })
        .map(|answers: Vec<()>| answers.len())
    }));
    assert!(panic.is_err());
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(
        seen.iter()
            .all(|text| text.contains("rank 3 panicked: rank 3 breaks")),
        "{seen:?}"
    );
}

#[test]
fn calls_that_do_not_belong_together_show_both() {
    let failed = threads::run(3, options(LONG), |group| match group.rank() {
        0 => group.barrier(),
        _ => group.all_reduce(DType::F32, ReduceOp::Sum, &mut [0; 8]),
    });
    let text = failed.unwrap_err().to_string();
    assert_eq!(
        text,
        "ranks make different calls: rank 0 `barrier(0)`, rank 1 `all_reduce(8, f32 sum)`"
    );
}

#[test]
fn a_call_that_fails_in_the_background_is_told_to_who_waits() {
    let failed = threads::run(2, options(LONG), |group| {
        let background = Background::new(group.as_ref())?;
        let len = 4 + 4 * group.rank();
        background
            .all_reduce(DType::F32, ReduceOp::Sum, vec![0; len])
            .wait()
    });
    assert!(matches!(failed, Err(Error::Differ { .. })), "{failed:?}");
}

#[test]
fn a_rank_that_leaves_its_calls_behind_ends_the_others_and_its_own_reason_is_told() {
    for panics in [false, true] {
        let begun = Instant::now();
        let left = std::panic::catch_unwind(|| {
            threads::run(3, options(LONG), |group| {
                let background =
                    Background::new(group.as_ref()).map_err(|error| error.to_string())?;
                if group.rank() == 1 {
                    // Nobody else makes this call.
                    let _never = background.all_reduce(DType::F32, ReduceOp::Sum, vec![0; 4]);
                    assert!(!panics, "the rank was told to");
                    return Err("the disk is full".to_string());
                }
                group.barrier().map_err(|error| error.to_string())
            })
        });
        match left {
            Ok(left) => assert_eq!(left, Err("the disk is full".to_string())),
            Err(panic) => assert_eq!(panic.downcast_ref::<&str>(), Some(&"the rank was told to")),
        }
        assert!(begun.elapsed() < LONG);
    }
}

#[test]
fn a_world_of_none_is_nothing() {
    let none = threads::run(0, options(LONG), |_| Ok::<_, Error>(()));
    assert_eq!(none.unwrap(), []);
}

#[test]
fn the_same_group_gives_the_same_bits_every_time() {
    let run = || {
        threads::run(5, options(LONG), |group| {
            let value =
                |index: usize| ((index * 37 + group.rank() * 101) % 1009) as f32 * 0.1 + 1e-3;
            let mut bytes: Vec<u8> = (0..20_000)
                .flat_map(|index| value(index).to_le_bytes())
                .collect();
            group.all_reduce(DType::F32, ReduceOp::Sum, &mut bytes)?;
            Ok::<_, Error>(bytes)
        })
        .unwrap()
    };
    let first = run();
    assert!(first.iter().all(|bytes| bytes == &first[0]));
    for _ in 0..5 {
        assert_eq!(run(), first);
    }
}
