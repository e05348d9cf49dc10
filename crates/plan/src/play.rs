//! A schedule played through: when each action happens if every stage waits for what it needs.

use crate::{Action, Error, Schedule, Work};
use std::collections::HashMap;

/// An action with its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// What is done.
    pub action: Action,
    /// When it begins.
    pub start: f64,
    /// When it is over.
    pub end: f64,
}

/// The times of all actions, by stage, given how long a part takes one way and how long it takes to send to another stage.
///
/// Each stage does its actions in order, each as soon as its input is there. Sending takes nothing of the sender's time.
pub(crate) fn play(
    schedule: &Schedule,
    duration: impl Fn(usize, Work) -> f64,
    send: f64,
) -> Result<Vec<Vec<Span>>, Error> {
    let mut spans: Vec<Vec<Span>> = vec![Vec::new(); schedule.stages.len()];
    let mut ends: HashMap<(usize, Action), f64> = HashMap::new();
    // Stages that may be able to go on.
    let mut awake: Vec<usize> = (0..schedule.stages.len()).rev().collect();
    while let Some(stage) = awake.pop() {
        while let Some(&action) = schedule.stages[stage].get(spans[stage].len()) {
            let arrival = match schedule.input(stage, action) {
                None => 0.0,
                Some((from, input)) => match ends.get(&(from, input)) {
                    None => break,
                    Some(end) if from == stage => *end,
                    Some(end) => end + send,
                },
            };
            let free = spans[stage].last().map_or(0.0, |span| span.end);
            let start = free.max(arrival);
            let end = start + duration(schedule.part(stage, action.chunk), action.work);
            spans[stage].push(Span { action, start, end });
            ends.insert((stage, action), end);
            let output = schedule.output(stage, action);
            awake.extend(output.map(|(to, _)| to).filter(|to| *to != stage));
        }
    }
    let next = |(stage, actions): (usize, &Vec<Action>)| {
        let action = actions.get(spans[stage].len())?;
        Some((stage, *action))
    };
    let waiting: Vec<(usize, Action)> = schedule
        .stages
        .iter()
        .enumerate()
        .filter_map(next)
        .collect();
    match waiting.is_empty() {
        true => Ok(spans),
        false => Err(Error::Deadlock { waiting }),
    }
}
