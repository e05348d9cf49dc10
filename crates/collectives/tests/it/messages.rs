//! Ranks that send each other messages keep the same promises as threads that read each other's memory.

use cairn_collectives::{Communicator, Error, testing};
use cairn_tensor::{DType, ReduceOp};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

type Group = Arc<dyn Communicator>;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

fn run<R: Send>(size: usize, timeout: Duration, body: impl Fn(&Group) -> R + Sync) -> Vec<R> {
    let (members, body) = (testing::wired(size, timeout), &body);
    thread::scope(|scope| {
        let ranks: Vec<_> = members
            .iter()
            .map(|member| scope.spawn(move || body(member)))
            .collect();
        let joined = ranks.into_iter().map(|rank| rank.join());
        joined
            .map(|answer| answer.expect("no rank panics"))
            .collect()
    })
}

fn messages(answers: Vec<Result<(), Error>>) -> Vec<String> {
    let text = |answer: Result<(), Error>| answer.map_or_else(|e| e.to_string(), |()| "ok".into());
    answers.into_iter().map(text).collect()
}

#[test]
fn messages_keep_every_promise() {
    testing::conformance(&|size, body| drop(run(size, LONG, |group| body(group))));
}

#[test]
fn a_rank_that_does_not_write_is_named_to_all() {
    let answers = run(3, SHORT, |group| match group.rank() {
        1 => {
            thread::sleep(3 * SHORT);
            group.barrier()
        }
        _ => group.barrier(),
    });
    let absent = "`barrier(0)` waited 0.2 s for ranks [1]";
    for text in messages(answers) {
        assert!(text.contains(absent), "{text}");
    }
}

#[test]
fn messages_of_different_calls_show_both() {
    let start = Instant::now();
    let answers = run(3, LONG, |group| match group.rank() {
        0 => group.barrier(),
        _ => group.all_reduce(DType::F32, ReduceOp::Sum, &mut [0; 8]),
    });
    let differ = "ranks make different calls: rank 0 `barrier(0)`, rank 1 `all_reduce(8, f32 sum)`";
    for text in messages(answers) {
        assert!(text.contains(differ), "{text}");
    }
    assert!(start.elapsed() < LONG / 2);
}

#[test]
fn the_end_reaches_calls_of_every_group() {
    let answers = run(4, LONG, |group| {
        // The end may overtake the last letters of these calls.
        let half = group.split((group.rank() / 2) as u64, 0)?;
        half.barrier()?;
        if group.rank() == 3 {
            group.end("the disk is full");
            return group.send(0, 0, &[1]);
        }
        if group.rank() == 2 {
            return half.barrier();
        }
        loop {
            half.barrier()?;
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(
        messages(answers),
        ["the group has ended: the disk is full"; 4]
    );
}

#[test]
fn a_message_that_never_comes_names_its_sender() {
    let answers = run(2, SHORT, |group| match group.rank() {
        0 => group.receive(1, 7, &mut [0; 4]),
        _ => Ok(()),
    });
    assert_eq!(
        messages(answers),
        ["`receive(4)` waited 0.2 s for ranks [1]", "ok"]
    );
}
