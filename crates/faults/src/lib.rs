//! A simulated world in which saves meet every fault there is, again and again, by seed.
//!
//! The real code of `cairn-checkpoint` runs here, all of it: ranks that plan, capture, write and commit, readers, and pruners. What is
//! simulated is what they stand on. One scheduler decides which thread of which process goes next at every lock, channel, clock and
//! operation of a store; time passes when everybody waits; the disk forgets what was not synced. So one number, the seed,
//! decides all that happens, and what fails once fails again:
//!
//! ```text
//! seed ─▶ Case: who saves, reads and prunes, and what goes wrong when      (plain data, can be cut down)
//!           │
//!           ▼
//!  launch 0 rank 0, rank 1 …   launch 1 …   readers   pruners               real code, one thread at a time
//!           └────────────── store, clock ──────────────┘
//!                    faults: killed, no power, full, torn, hung, lost, twice, rotten
//!           │
//!           ▼
//! judge: what was promised loads to the bit, the newest step loads, failures were told, nothing is left over
//! ```
//!
//! | to | use |
//! |---|---|
//! | run the cases of many seeds | `run_seeds` |
//! | run one again | `Case::draw`, `run_case` |
//! | see what is least about a failure | `minimise` |
//! | prove that mistakes are found | `Defect` |
//!
//! All of it needs the feature `simulate`, which changes what `cairn-checkpoint` is: `cargo xtask faults` builds it apart.

#![cfg(feature = "simulate")]

mod actors;
mod campaign;
mod content;
mod defect;
mod disk;
mod fault;
mod judge;
mod ledger;
mod random;
mod scenario;
mod scheduler;
mod store;
mod trace;
mod world;

pub use campaign::{Outcome, Summary, minimise, run_case, run_seeds};
pub use defect::Defect;
pub use disk::Loss;
pub use fault::{Fault, Kind};
pub use ledger::Rule;
pub use scenario::{Case, Keeping, Scenario, Tiers};
