//! Training with every kind of parallelism, on the state core of Cairn.

pub mod config;
mod error;

pub use error::Error;
