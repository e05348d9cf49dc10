//! What happens in a case besides faults: who saves what, who reads, who deletes.

use crate::fault::{self, Fault, Kind};
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
    /// Whether data files are compressed.
    pub compress: bool,
    /// How often somebody makes the newest step stand alone.
    pub compactions: u64,
    /// Whether a rank goes on after a failed save.
    pub stubborn: bool,
    /// How often somebody loads the newest step meanwhile.
    pub readings: u64,
    /// How often somebody prunes meanwhile.
    pub prunings: u64,
    /// How often somebody tags a step meanwhile.
    pub taggings: u64,
    /// How many of the newest steps these keep.
    pub keep_last: usize,
    /// How many of a hundred operations take a while.
    pub slow_percent: u64,
    /// Whether there is a fast tier before the store.
    pub tiers: Option<Tiers>,
    /// Whether launches go back to a step that they choose, which may be an old one.
    pub back: bool,
    /// Whether all launches have the same name.
    pub same_name: bool,
    /// In how many of a hundred saves a rank meets an exception of its own before its state is taken.
    pub throws: u64,
    /// Whether ranks whose save failed try the step once more, with what their state is by then.
    pub retries: bool,
    /// How many machines ranks run on, each with a keeper; 0, if there are no keepers.
    pub keepers: usize,
}

/// A fast tier of files before the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiers {
    /// How many nodes have one of their own; 0, if all ranks share one.
    pub nodes: usize,
    /// How many durable steps stay on it.
    pub keep_fast: usize,
    /// Whether ranks wait for each step to be durable before they go on.
    pub eager: bool,
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
        let mut scenario = Scenario::draw(&mut random);
        let mut more = Random::new(seed, "more");
        scenario.draw_more(&mut more);
        scenario.compress = Random::new(seed, "compression").chance(25);
        scenario.draw_lives(&mut Random::new(seed, "lives"));
        let operations = scenario.operations();
        let mut faults = fault::draw(&mut random, scenario.keeping, operations);
        if scenario.tiers.is_some() && more.chance(30) {
            let tier = 1 + more.index(scenario.fast_tiers());
            let (at, kind) = (more.below(operations), Kind::FastLost { tier });
            faults.push(Fault { at, kind });
        }
        let mut keeper = Random::new(seed, "keeper");
        scenario.draw_keepers(&mut keeper);
        faults.extend(fault::draw_of_keepers(
            &mut keeper,
            scenario.keepers,
            operations,
        ));
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
            compress: false,
            compactions: if delta { random.below(3) } else { 0 },
            stubborn: random.chance(50),
            readings: random.below(3),
            prunings: random.below(3),
            keep_last: 1 + random.index(2),
            slow_percent: random.pick(&[0, 0, 5, 20]),
            taggings: 0,
            tiers: None,
            back: false,
            same_name: false,
            throws: 0,
            retries: false,
            keepers: 0,
        }
    }

    /// Draws what relaunches and programs do, from numbers of its own.
    fn draw_lives(&mut self, random: &mut Random) {
        self.back = random.chance(30);
        // Of two launches that begin at the same time under one name, nobody can tell which rank belongs to which.
        self.same_name = random.chance(30) && !self.overlapping;
        self.throws = random.pick(&[0, 0, 0, 20]);
        self.retries = random.chance(25);
    }

    /// Draws whether captures have keepers, from numbers of its own.
    fn draw_keepers(&mut self, random: &mut Random) {
        if random.chance(50) {
            self.keepers = random.pick(&[1, 1, 3]);
        }
    }

    /// Draws what worlds have more of, from numbers of its own.
    fn draw_more(&mut self, random: &mut Random) {
        self.taggings = random.pick(&[0, 0, 1, 2]);
        if random.chance(40) {
            let tiers = Tiers {
                nodes: random.pick(&[0, 0, 2, 3]),
                keep_fast: 1 + random.index(2),
                eager: random.chance(30),
            };
            if tiers.nodes > 0 {
                // No node knows which steps are committed.
                self.delta = false;
                self.compactions = 0;
            }
            self.tiers = Some(tiers);
        }
    }

    /// How many fast tiers there are.
    pub(crate) fn fast_tiers(&self) -> usize {
        self.tiers.map_or(0, |tiers| tiers.nodes.max(1))
    }

    /// Whether each node has a fast tier of its own.
    pub(crate) fn is_per_node(&self) -> bool {
        self.tiers.is_some_and(|tiers| tiers.nodes > 0)
    }

    /// About how many operations it has.
    fn operations(&self) -> u64 {
        let ranks: usize = self.launches.iter().sum();
        let each = if self.keeping == Keeping::Files {
            30
        } else {
            12
        };
        let each = if self.tiers.is_some() {
            each + 40
        } else {
            each
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
        add(&|less| less.taggings = less.taggings.saturating_sub(1));
        add(&|less| less.compactions = less.compactions.saturating_sub(1));
        add(&|less| less.tiers = None);
        add(&|less| less.keepers = 0);
        add(&|less| less.keepers = less.keepers.min(1));
        add(&|less| less.back = false);
        add(&|less| less.same_name = false);
        add(&|less| less.throws = 0);
        add(&|less| less.retries = false);
        add(&|less| less.delta = false);
        add(&|less| less.compress = false);
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
            (it.compress, "compressing"),
            (it.compactions > 0, "compacting"),
            (it.stubborn, "going on after failures"),
            (it.slow_percent > 0, "slowly"),
            (it.tiers.is_some() && !it.is_per_node(), "on tiers"),
            (it.is_per_node(), "on tiers with nodes of their own"),
            (it.back, "going back"),
            (it.same_name, "under one name"),
            (it.throws > 0, "with exceptions"),
            (it.retries, "trying again"),
            (it.keepers == 1, "with a keeper"),
            (it.keepers > 1, "with a keeper for each machine"),
        ];
        for (is, word) in words {
            if is {
                write!(f, ", {word}")?;
            }
        }
        write!(
            f,
            "; {} steps each; {} readings, {} taggings, {} prunings that keep {}",
            it.steps, it.readings, it.taggings, it.prunings, it.keep_last
        )?;
        for fault in &self.faults {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }
}
