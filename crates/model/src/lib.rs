//! Decoder models as blocks with forward and backward, written by hand.

mod block;
mod error;

pub use block::{Activation, Batch, Block, IGNORED, Keep, Pass, Saved};
pub use error::Error;
