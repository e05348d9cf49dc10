//! Models into one: linear, slerp, ties, dare, della and others, streamed through little memory.
//!
//! | to | use |
//! |---|---|
//! | read a mergekit YAML file, or Paddle's `MergeConfig` | [`Config::parse`] |
//! | know the methods and their parameters | [`spec::METHODS`] |
//! | open the models and see what will happen | [`Merge::new`], [`Merge::cost`], [`Merge::files`] |
//! | write the result, or go on where it stopped | [`Merge::write`] |
//!
//! A merge goes tensor by tensor. What a method has to know of whole tensors, such as norms, inner products or the size of the
//! n-th largest element, it learns in passes over blocks of fixed size; then it works out block after block into the file. Sums
//! are added in the order of blocks and random numbers belong to elements, so the bytes of the result depend neither on the number
//! of threads nor on the memory at hand.
//!
//! ```no_run
//! use cairn_merge::{Config, Merge, Options};
//!
//! let config = Config::parse("
//! merge_method: ties
//! base_model: models/base
//! models:
//!   - {model: models/math, parameters: {weight: 0.5, density: 0.3}}
//!   - {model: models/code, parameters: {weight: 0.5, density: 0.3}}
//! ")?;
//! let merge = Merge::new(config, Options::default())?;
//! println!("{} bytes to write", merge.cost().write_bytes);
//! # Ok::<(), cairn_merge::Error>(())
//! ```

mod adapter;
mod assets;
mod config;
mod error;
mod fill;
mod input;
mod layers;
mod lora;
mod merge;
mod methods;
mod models;
mod number;
mod operands;
mod output;
mod passes;
mod plan;
mod random;
mod select;
pub mod spec;
#[cfg(test)]
mod testing;
mod tokenizer;
mod vectors;
mod vocabulary;

pub use cairn_checkpoint::PlannedFile;
pub use config::{
    Body, Config, InputModel, InputSlice, ModelReference, Module, OutputSlice, Problem, Settings,
    TokenSource, TokenizerConfig, TokenizerSource,
};
pub use error::Error;
pub use merge::{Cost, Merge, Options};
pub use output::{WriteOptions, WriteReport};
