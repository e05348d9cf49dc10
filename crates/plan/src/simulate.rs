//! What a schedule costs: when each stage works, and when it waits.

#[cfg(test)]
mod tests;

use crate::play::play;
use crate::{Error, Schedule, Span, Work};

/// How long things take, in any unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// The forward of each part of the model, for one micro-batch.
    pub forward: Vec<f64>,
    /// The backward of each part of the model, for one micro-batch.
    pub backward: Vec<f64>,
    /// Until what one stage has sent is there. It takes nothing of the time of either.
    pub send: f64,
}

impl Costs {
    /// Parts that are all alike.
    pub fn equal(parts: usize, forward: f64, backward: f64, send: f64) -> Self {
        Self {
            forward: vec![forward; parts],
            backward: vec![backward; parts],
            send,
        }
    }

    fn check(&self, parts: usize) -> Result<(), Error> {
        for costs in [self.forward.len(), self.backward.len()] {
            if costs != parts {
                return Err(Error::Costs { costs, parts });
            }
        }
        let named = |what: &'static str| {
            move |(part, cost): (usize, &f64)| (format!("the {what} of part {part}"), *cost)
        };
        let forward = self.forward.iter().enumerate().map(named("forward"));
        let backward = self.backward.iter().enumerate().map(named("backward"));
        let send = [("a send".to_string(), self.send)];
        let bad = forward
            .chain(backward)
            .chain(send)
            .find(|(_, cost)| !cost.is_finite() || *cost < 0.0);
        match bad {
            None => Ok(()),
            Some((what, cost)) => Err(Error::Cost { what, cost }),
        }
    }
}

/// When every stage does what.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// How many chunks of layers each stage has.
    pub chunks: usize,
    /// The actions of each stage with their times, in order.
    pub stages: Vec<Vec<Span>>,
    /// When the last action is over; the first begins at 0.
    pub total: f64,
    /// As [`Schedule::peaks`].
    pub peaks: Vec<usize>,
}

impl Timeline {
    /// For how long a stage works.
    pub fn busy(&self, stage: usize) -> f64 {
        let spans = self.stages[stage].iter();
        spans.map(|span| span.end - span.start).sum()
    }

    /// The share of its time that a stage waits, from 0 to 1.
    pub fn idle_share(&self, stage: usize) -> f64 {
        match self.total > 0.0 {
            true => 1.0 - self.busy(stage) / self.total,
            false => 0.0,
        }
    }

    /// The share of their time that all stages together wait, from 0 to 1: the bubble.
    pub fn bubble_share(&self) -> f64 {
        let stages = self.stages.len();
        (0..stages).map(|stage| self.idle_share(stage)).sum::<f64>() / stages.max(1) as f64
    }
}

/// Works out when each action of a schedule happens.
///
/// Only the schedule is simulated: not the optimizer, nor how sends and computation disturb each other. Measured times are longer.
///
/// # Errors
/// If the schedule fails its [`check`](Schedule::check), or a cost is missing, negative or not a number.
pub fn simulate(schedule: &Schedule, costs: &Costs) -> Result<Timeline, Error> {
    schedule.check()?;
    costs.check(schedule.parts())?;
    let duration = |part: usize, work: Work| match work {
        Work::Forward => costs.forward[part],
        Work::Backward => costs.backward[part],
    };
    let stages = play(schedule, duration, costs.send)?;
    let ends = stages
        .iter()
        .filter_map(|spans| spans.last())
        .map(|span| span.end);
    Ok(Timeline {
        chunks: schedule.chunks,
        total: ends.fold(0.0, f64::max),
        peaks: schedule.peaks(),
        stages,
    })
}
