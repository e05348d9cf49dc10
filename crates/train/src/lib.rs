//! Training with every kind of parallelism, on the state core of Cairn.

mod error;

pub use error::Error;
