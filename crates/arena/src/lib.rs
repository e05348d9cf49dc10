//! Flat memory of named parameters, and the optimizers that change it.
//!
//! A [`Bucket`] is the memory of one block of a model: its [`Parameter`]s one after another, as this rank of the `tp` axis holds them. An [`Arena`] holds
//! all buckets of a rank with their gradients and what the optimizer remembers, and shares them out between the ranks of the `dp` axis as far
//! as its [`Stage`] says. It knows groups of ranks and names of tensors, and nothing of what blocks compute.
//!
//! | to | use |
//! |---|---|
//! | describe the parameters of a block | [`Parameter`], [`Bucket`] |
//! | hold them, and lend them to passes | [`Arena`] |
//! | make a step | [`Arena::step`], with [`Hyper`] |
//! | choose how fast to learn | [`Schedule`] |
//! | keep what the optimizer remembers in files | [`Options::offload`] |
//! | know how much memory that takes | [`Arena::usage`] |
//! | save and load | [`Arena::add_to`], [`Arena::load`] |
//!
//! Results have the same bits on every rank and in every run of one layout: sums are made in the order of ranks.

mod arena;
mod bucket;
mod buffers;
mod cut;
mod error;
mod gradients;
mod init;
mod kept;
mod load;
mod memory;
mod optimizer;
mod options;
mod parameters;
mod remembered;
mod schedule;
mod state;
mod step;
mod sums;
#[cfg(test)]
mod testing;
mod tools;
mod usage;

pub use arena::Arena;
pub use bucket::{Bucket, Init, Parameter, Slot};
pub use error::Error;
pub use load::{Loaded, Scope};
pub use optimizer::Optimizer;
pub use options::{Groups, Options, Stage, Tied};
pub use schedule::{Decay, Schedule};
pub use state::UPDATES;
pub use step::{Hyper, StepReport};
pub use usage::Usage;
