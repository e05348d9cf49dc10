//! What happens in a case besides faults: who saves what, who reads, who deletes.

use crate::fault::{self, Fault};
use crate::random::Random;
use std::fmt;

/// One world, as plain data: the seed decides the order of everything, the rest can be cut down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Decides every order and every choice within a fault.
    pub seed: u64,
    /// Who does what.
    pub scenario: Scenario,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// Who does what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// What lies under the store.
    pub keeping: Keeping,
    /// The ranks of each launch, in the order in which launches begin.
    pub launches: Vec<usize>,
    /// Whether launches run at the same time, as they do when one is taken for dead.
    pub overlapping: bool,
    /// The steps each launch saves.
    pub steps: u64,
    /// Whether a save replaces a committed step.
    pub replace: bool,
    /// Whether a rank begins the next save while the one before is written.
    pub queued: bool,
    /// Whether saves refer to blocks of earlier steps that are as they were.
    pub delta: bool,
    /// How often somebody makes the newest step stand alone.
    pub compactions: u64,
    /// Whether a rank goes on after a failed save.
    pub stubborn: bool,
    /// How often somebody loads the newest step meanwhile.
    pub readings: u64,
    /// How often somebody prunes meanwhile.
    pub prunings: u64,
    /// How many of the newest steps these keep.
    pub keep_last: usize,
    /// How many of a hundred operations take a while.
    pub slow_percent: u64,
}

/// What lies under the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Files of a file system that all machines see.
    Files,
    /// An object store.
    Objects,
    /// An object store whose listings lag behind.
    LaggingObjects,
}

impl Case {
    /// The case of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, "case");
        let scenario = Scenario::draw(&mut random);
        let faults = fault::draw(&mut random, scenario.keeping, scenario.operations());
        Self {
            seed,
            scenario,
            faults,
        }
    }
}

impl Scenario {
    fn draw(random: &mut Random) -> Self {
        let launches = random.pick(&[1, 2, 2, 3]);
        let delta = random.chance(40);
        Self {
            keeping: random.pick(&[
                Keeping::Files,
                Keeping::Files,
                Keeping::Objects,
                Keeping::LaggingObjects,
            ]),
            launches: (0..launches).map(|_| 1 + random.index(3)).collect(),
            overlapping: random.chance(40),
            steps: 1 + random.below(3),
            replace: random.chance(25),
            queued: random.chance(25),
            delta,
            compactions: if delta { random.below(3) } else { 0 },
            stubborn: random.chance(50),
            readings: random.below(3),
            prunings: random.below(3),
            keep_last: 1 + random.index(2),
            slow_percent: random.pick(&[0, 0, 5, 20]),
        }
    }

    /// About how many operations it has.
    fn operations(&self) -> u64 {
        let ranks: usize = self.launches.iter().sum();
        let each = if self.keeping == Keeping::Files {
            30
        } else {
            12
        };
        20 + ranks as u64 * self.steps * each
    }

    /// Scenarios with less in them, to find the least in which something goes wrong.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut less = self.clone();
            change(&mut less);
            if less != *self {
                smaller.push(less);
            }
        };
        for index in 0..self.launches.len() {
            if self.launches.len() > 1 {
                add(&|less| {
                    less.launches.remove(index);
                });
            }
            add(&|less| less.launches[index] = (less.launches[index] - 1).max(1));
        }
        add(&|less| less.steps = (less.steps - 1).max(1));
        add(&|less| less.readings = less.readings.saturating_sub(1));
        add(&|less| less.prunings = less.prunings.saturating_sub(1));
        add(&|less| less.compactions = less.compactions.saturating_sub(1));
        add(&|less| less.delta = false);
        add(&|less| less.queued = false);
        add(&|less| less.overlapping = false);
        add(&|less| less.slow_percent = 0);
        smaller
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = &self.scenario;
        let keeping = match it.keeping {
            Keeping::Files => "files",
            Keeping::Objects => "objects",
            Keeping::LaggingObjects => "objects whose listings lag behind",
        };
        write!(
            f,
            "seed {}: {keeping}; launches of {:?} ranks",
            self.seed, it.launches
        )?;
        let words = [
            (it.overlapping, "at the same time"),
            (it.replace, "replacing steps"),
            (it.queued, "saving behind each other"),
            (it.delta, "saving what changed"),
            (it.compactions > 0, "compacting"),
            (it.stubborn, "going on after failures"),
            (it.slow_percent > 0, "slowly"),
        ];
        for (is, word) in words {
            if is {
                write!(f, ", {word}")?;
            }
        }
        write!(
            f,
            "; {} steps each; {} readings, {} prunings that keep {}",
            it.steps, it.readings, it.prunings, it.keep_last
        )?;
        for fault in &self.faults {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }
}
