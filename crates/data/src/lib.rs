//! Tokens to train on: files of them, an order that is one number, packing and mixtures.

mod error;

pub use error::Error;
