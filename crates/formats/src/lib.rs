//! Other people's files: what is inside, and where its bytes lie.
//!
//! Nothing here moves tensor data. A format answers one question, "which bytes of which file are this tensor",
//! and the checkpoint engine reads them like its own.
//!
//! * [`safetensors`]: the header of one file, parsed and written.
//! * [`pickle`]: pickles as inert records, nothing run.
//! * [`hf`]: a Hugging Face model folder, or a single safetensors file, as a list of tensors.

mod error;
pub mod hf;
pub mod pickle;
pub mod safetensors;

pub use error::Error;
