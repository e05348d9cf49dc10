//! Sums and gathers go on while a rank computes: what it would wait for forever, if they did not, comes.

use crate::common::{HYPER, Layout, blocks, on_model};
use cairn_arena::Stage;
use cairn_collectives::{Communicator, Error};
use cairn_tensor::{DType, ReduceOp};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How long a call may take before it is said not to happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a rank's groups have done.
#[derive(Debug, Default)]
struct Log {
    events: Mutex<Vec<&'static str>>,
    grown: Condvar,
}

impl Log {
    fn note(&self, event: &'static str) {
        self.events.lock().unwrap().push(event);
        self.grown.notify_all();
    }

    /// Waits until `event` has happened `times` times.
    fn await_times(&self, event: &str, times: usize) {
        let missing =
            |events: &mut Vec<&str>| events.iter().filter(|e| **e == event).count() < times;
        let waited = self
            .grown
            .wait_timeout_while(self.events.lock().unwrap(), PATIENCE, missing);
        assert!(!waited.unwrap().1.timed_out(), "no {event} number {times}");
    }
}

/// A group that writes down what is done.
#[derive(Debug)]
struct Logged(Arc<dyn Communicator>, Arc<Log>);

impl Communicator for Logged {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn world_ranks(&self) -> &[usize] {
        self.0.world_ranks()
    }
    fn all_reduce(&self, dtype: DType, op: ReduceOp, bytes: &mut [u8]) -> Result<(), Error> {
        self.0.all_reduce(dtype, op, bytes)?;
        self.1.note("sum");
        Ok(())
    }
    fn reduce_scatter(
        &self,
        dtype: DType,
        op: ReduceOp,
        bytes: &[u8],
        lens: &[usize],
        out: &mut [u8],
    ) -> Result<(), Error> {
        self.0.reduce_scatter(dtype, op, bytes, lens, out)?;
        self.1.note("sum");
        Ok(())
    }
    fn all_gather(&self, bytes: &[u8], lens: &[usize], out: &mut [u8]) -> Result<(), Error> {
        self.0.all_gather(bytes, lens, out)?;
        self.1.note("gather");
        Ok(())
    }
    fn all_to_all(
        &self,
        bytes: &[u8],
        send_lens: &[usize],
        out: &mut [u8],
        receive_lens: &[usize],
    ) -> Result<(), Error> {
        self.0.all_to_all(bytes, send_lens, out, receive_lens)
    }
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.0.broadcast(root, bytes)
    }
    fn barrier(&self) -> Result<(), Error> {
        self.0.barrier()
    }
    fn send(&self, to: usize, tag: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0.send(to, tag, bytes)
    }
    fn receive(&self, from: usize, tag: u64, out: &mut [u8]) -> Result<(), Error> {
        self.0.receive(from, tag, out)
    }
    fn split(&self, color: u64, key: u64) -> Result<Arc<dyn Communicator>, Error> {
        let part = self.0.split(color, key)?;
        Ok(Arc::new(Self(part, self.1.clone())))
    }
    fn end(&self, reason: &str) {
        self.0.end(reason);
    }
}

/// Runs `body` on two ranks, each with the log of its own group.
fn on_logged(stage: Stage, body: impl Fn(&mut crate::common::Rank, &Log) + Sync) {
    let logs: [Arc<Log>; 2] = Default::default();
    let wrap = |group: Arc<dyn Communicator>| -> Arc<dyn Communicator> {
        let log = logs[group.rank()].clone();
        Arc::new(Logged(group, log))
    };
    on_model(
        Layout::new("dp=2,pp=1,tp=1", stage, DType::Bf16),
        &blocks(),
        wrap,
        |rank| {
            let log = logs[rank.world.rank()].clone();
            body(rank, &log);
            Ok(())
        },
    );
}

#[test]
fn gradients_are_summed_while_backward_goes_on() {
    for stage in crate::layouts::STAGES {
        on_logged(stage, |rank, log| {
            for (done, bucket) in [2, 1, 0].into_iter().enumerate() {
                rank.backward_of(bucket, 0, 0..1).unwrap();
                rank.arena.ready(bucket, true).unwrap();
                log.await_times("sum", done + 1);
            }
            rank.arena.step(&HYPER).unwrap();
        });
    }
}

#[test]
fn the_next_parameters_are_gathered_while_a_block_computes() {
    on_logged(Stage::Parameters, |rank, log| {
        rank.arena.weights(0).unwrap();
        rank.arena.prefetch(1);
        log.await_times("gather", 2);
        rank.arena.release(0);
        rank.arena.weights(1).unwrap();
        rank.arena.release(1);
        assert_eq!(
            *log.events.lock().unwrap(),
            ["gather"; 2],
            "and not once more"
        );
    });
}

#[test]
fn gradients_of_micro_batches_are_summed_when_memory_is_dear() {
    for (stage, sums) in [
        (Stage::Optimizer, 0),
        (Stage::Gradients, 1),
        (Stage::Parameters, 1),
    ] {
        on_logged(stage, |rank, log| {
            rank.backward_of(2, 0, 0..1).unwrap();
            rank.arena.ready(2, false).unwrap();
            log.await_times("sum", sums);
            assert_eq!(
                log.events
                    .lock()
                    .unwrap()
                    .iter()
                    .filter(|e| **e == "sum")
                    .count(),
                sums
            );
            rank.arena.ready(2, true).unwrap();
            rank.arena.step(&HYPER).unwrap();
        });
    }
}
