//! Decoder models as blocks with forward and backward, written by hand.
//!
//! | to | use |
//! |---|---|
//! | read and write a model's `config.json` | [`ModelConfig`] |
//! | get the blocks of a model | [`blocks`], [`Options`] |
//! | run a block forward and backward | [`Block`], [`Pass`], [`Keep`] |
//! | look at logits | [`Head::logits`] |
//! | generate text | [`Generator`] |
//! | build a block of one's own | [`Block`], [`parts`] |
//!
//! Parameters have the names and shapes of Hugging Face's models. The ranks of the `tp` axis share each block: heads, the width of the feed-forward part and
//! the vocabulary; with sequence parallelism also the rows between the parallel regions. No layout changes results beyond the order of sums, and
//! none changes randomness.

mod block;
mod config;
mod decoder;
mod embedding;
mod error;
mod generate;
mod head;
mod model;
pub mod parts;
mod rows;

pub use block::{Activation, Batch, Block, Fields, IGNORED, Keep, Pass, Saved};
pub use config::{Architecture, ModelConfig, Rope, Scaling};
pub use decoder::DecoderLayer;
pub use embedding::Embedding;
pub use error::{Error, Problem};
pub use generate::Generator;
pub use head::Head;
pub use model::{Options, blocks};
pub use rows::{Place, Share};
