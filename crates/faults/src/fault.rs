//! The faults of a case: which, and when.

use crate::disk::Loss;
use crate::random::Random;
use crate::scenario::Keeping;
use std::fmt;

/// Something that goes wrong at the first operation, from a number on, that it can happen to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Operations of all processes are counted from 0.
    pub at: u64,
    /// What happens.
    pub kind: Kind,
}

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The process is killed, before the operation or when it has had its effect.
    Kill {
        /// Whether the operation still has its effect.
        after: bool,
    },
    /// The machine of the process loses power.
    Crash {
        /// Whether the operation still has its effect.
        after: bool,
        /// What becomes of what it had not synced.
        loss: Loss,
    },
    /// All machines lose power.
    PowerLoss {
        /// What becomes of what was not synced.
        loss: Loss,
    },
    /// There is no space, for so many operations that need some.
    NoSpace {
        /// How many operations find the disk full.
        operations: u64,
    },
    /// The operation fails without an effect: `EIO` of a disk, 500 or 503 of a server.
    Fails,
    /// The operation has its effect, but its answer is lost.
    AnswerLost,
    /// A request is sent twice, because its first answer is lost: the second answer is the one that arrives.
    Twice,
    /// A conditional request meets another one: 409, without an effect.
    Conflict,
    /// The process stands still for so many seconds.
    Hang {
        /// How long.
        seconds: u64,
    },
    /// The clock of the process is set to another time.
    ClockJump {
        /// By how much.
        seconds: i64,
    },
    /// A bit of some published object is not what it was.
    BitRot,
    /// A fast tier is gone with its machine, and with it everybody who runs.
    FastLost {
        /// The number of its disk.
        tier: usize,
    },
    /// A keeper is killed, whatever it does.
    KeeperKilled {
        /// The machine it runs on.
        machine: usize,
    },
}

/// An operation of a store, as far as faults care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Looks at objects.
    Read,
    /// Needs space.
    Write,
    /// Makes durable, publishes, or removes.
    Change,
    /// Publishes on a condition, in one request.
    Conditional,
    /// Says something to a keeper.
    Message,
}

impl Kind {
    /// What it is called where faults are counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill { .. } => "killed",
            Self::Crash { .. } => "no power on one machine",
            Self::PowerLoss { .. } => "no power on all machines",
            Self::NoSpace { .. } => "no space",
            Self::Fails => "operation fails",
            Self::AnswerLost => "answer lost",
            Self::Twice => "sent twice",
            Self::Conflict => "conflict",
            Self::Hang { .. } => "hang",
            Self::ClockJump { .. } => "clock jumps",
            Self::BitRot => "bit rot",
            Self::FastLost { .. } => "fast tier lost",
            Self::KeeperKilled { .. } => "keeper killed",
        }
    }

    /// Whether it can happen to such an operation.
    pub(crate) fn fits(self, operation: Operation) -> bool {
        match self {
            Self::NoSpace { .. } => operation == Operation::Write,
            Self::AnswerLost => operation != Operation::Read,
            Self::Twice => !matches!(operation, Operation::Read | Operation::Message),
            Self::Conflict => operation == Operation::Conditional,
            _ => true,
        }
    }

    fn draw(random: &mut Random, keeping: Keeping) -> Self {
        let loss = random.pick(&[Loss::All, Loss::Bytes, Loss::Some, Loss::Some]);
        let after = random.chance(50);
        let objects = keeping != Keeping::Files;
        match random.below(14) {
            0 => Self::Kill { after },
            1 | 2 => Self::Crash { after, loss },
            3 | 4 => Self::PowerLoss { loss },
            5 => Self::NoSpace {
                operations: random.pick(&[1, 2, 5, 40]),
            },
            6 | 7 => Self::Fails,
            8 if objects => Self::AnswerLost,
            9 if objects => Self::Twice,
            10 if objects => Self::Conflict,
            11 => Self::ClockJump {
                seconds: random.pick(&[-1800, -60, 60, 1800]),
            },
            12 => Self::BitRot,
            _ => Self::Hang {
                seconds: random.pick(&[1, 3, 8, 30, 1200]),
            },
        }
    }
}

/// Draws the faults of a case that has about so many operations.
pub(crate) fn draw(random: &mut Random, keeping: Keeping, operations: u64) -> Vec<Fault> {
    // One in five cases has nothing but an unusual order.
    let count = random.pick(&[0, 1, 1, 2, 4]);
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| Fault {
            at: random.below(operations),
            kind: Kind::draw(random, keeping),
        })
        .collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// Draws what becomes of keepers, if there are any, and of those whose captures they keep.
pub(crate) fn draw_of_keepers(random: &mut Random, keepers: usize, operations: u64) -> Vec<Fault> {
    if keepers == 0 {
        return Vec::new();
    }
    let after = random.chance(50);
    let kind = Kind::KeeperKilled {
        machine: random.index(keepers),
    };
    let mut kinds = vec![(40, kind), (50, Kind::Kill { after }), (20, Kind::Fails)];
    kinds.retain(|(percent, _)| random.chance(*percent));
    let faults = kinds.into_iter().map(|(_, kind)| Fault {
        at: random.below(operations),
        kind,
    });
    faults.collect()
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from operation {}: {}", self.at, self.kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = |after: bool| if after { "after" } else { "before" };
        match self {
            Self::Kill { after } => {
                write!(f, "the process is killed {} its operation", when(*after))
            }
            Self::Crash { after, loss } => {
                write!(
                    f,
                    "its machine loses power {} its operation ({loss})",
                    when(*after)
                )
            }
            Self::PowerLoss { loss } => write!(f, "all machines lose power ({loss})"),
            Self::NoSpace { operations } => write!(f, "no space for {operations} operations"),
            Self::Fails => write!(f, "the operation fails"),
            Self::AnswerLost => write!(f, "the answer is lost"),
            Self::Twice => write!(f, "the request is sent twice"),
            Self::Conflict => write!(f, "the request meets another one"),
            Self::Hang { seconds } => write!(f, "the process stands still for {seconds} s"),
            Self::ClockJump { seconds } => write!(f, "the clock jumps by {seconds} s"),
            Self::BitRot => write!(f, "a bit at rest flips"),
            Self::FastLost { tier } => write!(f, "fast tier {tier} is lost, and everybody dies"),
            Self::KeeperKilled { machine } => {
                write!(f, "the keeper of machine {machine} is killed")
            }
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all that was not synced is lost",
            Self::Bytes => "names are kept, bytes are lost",
            Self::Some => "some names and sectors are lost",
        })
    }
}
