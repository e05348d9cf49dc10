//! A model of how a step is committed, hidden, deleted, replaced and uploaded, and a search through every order of its moves.
//!
//! [`cairn-faults`] runs the real code through worlds that a seed draws. This crate knows no code: it has the protocol alone, as small machines
//! over the keys of one step, and visits *every* state that they can reach. A move is one operation of a store: create-only put, put,
//! rename, delete, a look at one key, a listing. Between any two of them anybody else may move, or die.
//!
//! ```text
//! keys      COMMIT  HIDDEN  DELETED  PRUNING  a tag  the files of three attempts
//! machines  two writers of a launch, a replacement, an uploader, two prunings, somebody who tags
//! ask       is all that was promised there, whole, and of one moment?          in every state
//! ```
//!
//! [`Rules::PROVEN`] is an order that keeps every promise: it is what the code is measured by. Each [`Mistake`] departs from it; the tests
//! show that the search finds what breaks. What the code does not do yet is in `docs/faults.md`.
//!
//! What the model takes for granted: a rename is one move (a bucket needs several), what is put is durable, and nobody is taken for dead
//! who lives: locks of prunings and attempts of others count as abandoned when they are an hour old.
//!
//! [`cairn-faults`]: https://github.com/cairn-rs/cairn/tree/main/crates/faults

mod actors;
mod rules;
mod search;
mod state;

pub use rules::{Bound, Mistake, Rules};
pub use search::{Counterexample, Limits, Report, check};
pub use state::Broken;
