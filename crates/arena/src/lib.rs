//! Flat memory of named parameters, and the optimizers that change it.
//!
//! A [`Bucket`] is the memory of one block of a model: its [`Parameter`]s one after another, as this rank of the `tp` axis holds them.

mod bucket;
mod error;

pub use bucket::{Bucket, Init, Parameter, Slot};
pub use error::Error;
