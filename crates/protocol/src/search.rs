//! Every state that can be reached, breadth first, each once.
//!
//! Visited states are kept as 64 bits of a hash. Two states with the same hash would be taken for one: among 10⁸ states that happens to none
//! with a probability of 99.97 %.

use crate::actors::{Step, successors};
use crate::rules::{Bound, Rules};
use crate::state::{Broken, State};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// Where a search ends without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// After so many states.
    pub states: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            states: 1_000_000_000,
        }
    }
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How many states there are.
    pub states: usize,
    /// How many moves lead from one to another.
    pub moves: usize,
    /// The most moves from the beginning.
    pub depth: usize,
    /// Whether the search ended by itself.
    pub is_complete: bool,
    /// The shortest story in which a promise is broken.
    pub counterexample: Option<Counterexample>,
}

/// How a promise is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counterexample {
    /// Which.
    pub broken: Broken,
    /// The moves that lead there.
    pub story: Vec<String>,
}

/// Visits all states.
pub fn check(rules: &Rules, bound: &Bound, limits: Limits) -> Report {
    let start = State::new(bound).canonical();
    let mut visited = Fingerprints::default();
    visited.insert(fingerprint(&start));
    let mut report = Report {
        states: 1,
        moves: 0,
        depth: 0,
        is_complete: true,
        counterexample: None,
    };
    let mut level = vec![start];
    let mut next = Vec::new();
    let mut steps = Vec::new();
    while !level.is_empty() {
        for state in &level {
            steps.clear();
            successors(state, rules, &mut steps);
            report.moves += steps.len();
            for step in &steps {
                let found = step.state.canonical();
                if !visited.insert(fingerprint(&found)) {
                    continue;
                }
                report.states += 1;
                if let Some(broken) = found.broken() {
                    report.counterexample = Some(tell(rules, start, &found, broken));
                    return report;
                }
                next.push(found);
            }
            if report.states > limits.states {
                report.is_complete = false;
                return report;
            }
        }
        report.depth += usize::from(!next.is_empty());
        level.clear();
        std::mem::swap(&mut level, &mut next);
    }
    report
}

/// Searches again, for the way to a state: the search itself keeps no ways.
fn tell(rules: &Rules, start: State, wanted: &State, broken: Broken) -> Counterexample {
    let mut came: HashMap<u64, (State, String)> = HashMap::new();
    let mut level = vec![start];
    let mut steps: Vec<Step> = Vec::new();
    while !came.contains_key(&fingerprint(wanted)) {
        let mut next = Vec::new();
        for state in &level {
            steps.clear();
            successors(state, rules, &mut steps);
            for step in &steps {
                let found = step.state.canonical();
                let key = fingerprint(&found);
                if found != start && !came.contains_key(&key) {
                    came.insert(key, (*state, (step.told)(state)));
                    next.push(found);
                }
            }
        }
        level = next;
    }
    let mut story = Vec::new();
    let mut at = *wanted;
    while let Some((before, told)) = came.get(&fingerprint(&at)) {
        let keys = format!(
            "commit {}, hidden {}, deleted {}",
            name(at.commit),
            name(at.hidden),
            name(at.deleted)
        );
        story.push(format!("{told:<60} {keys}"));
        at = *before;
    }
    story.reverse();
    Counterexample { broken, story }
}

fn name(attempt: Option<crate::state::Attempt>) -> String {
    attempt.map_or("-".into(), |attempt| format!("{attempt:?}"))
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = Mixer(0x9e37_79b9_7f4a_7c15);
    state.hash(&mut hasher);
    hasher.finish().max(1)
}

/// A hash that mixes well and fast: multiplication in 128 bits, folded.
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93_a076_1d64_78bd_642f);
        let folded = product ^ (product >> 64);
        self.0 = u64::try_from(folded & u128::from(u64::MAX)).expect("it is masked");
        self.0 = self.0.rotate_left(23) ^ word.wrapping_mul(0xe703_7ed1_a0b4_28db);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        let mut last = Self(self.0);
        last.mix(0x8ebc_6af0_9c88_c6e3);
        last.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.mix(number.unsigned_abs() as u64);
    }
}

/// A set of hashes in one piece of memory; 0 is none.
#[derive(Debug, Default)]
struct Fingerprints {
    slots: Vec<u64>,
    len: usize,
}

impl Fingerprints {
    /// Whether it is new.
    fn insert(&mut self, hash: u64) -> bool {
        if self.len * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        let is_new = place(&mut self.slots, hash);
        self.len += usize::from(is_new);
        is_new
    }

    fn grow(&mut self) {
        let mut slots = vec![0; (self.slots.len() * 2).max(1 << 16)];
        for hash in self.slots.drain(..).filter(|hash| *hash != 0) {
            place(&mut slots, hash);
        }
        self.slots = slots;
    }
}

fn place(slots: &mut [u64], hash: u64) -> bool {
    let mask = slots.len() - 1;
    let mut at = usize::try_from(hash).expect("addresses have 64 bits") & mask;
    loop {
        match slots[at] {
            0 => {
                slots[at] = hash;
                return true;
            }
            found if found == hash => return false,
            _ => at = (at + 1) & mask,
        }
    }
}
