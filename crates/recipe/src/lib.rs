//! The transform language: how the tensors of a checkpoint become those of a model.
//!
//! A [`Program`] is a list of statements such as `q, k, v -> qkv, axis=0`. It is compiled against the tensors it will find
//! ([`Compiled`]), without reading them: each target is a list of pieces, and each piece says which box of which source it
//! is and which steps turn that box into the target's. So a program costs nothing at load time beyond the bytes it needs.
//!
//! ```text
//! text ── statement ──> names and attributes, as written
//!      ── expand ────> one statement for each id; ranges and stars as lists
//!      ── operation ─> what the attributes do to the list of tensors, one after another
//!      ── engine ────> each tensor as boxes of sources and steps (`value`)
//!      ── finish ────> the targets asked for, checked; optimizer state after its parameter
//! ```
//!
//! The language is a superset of Paddle's AOA: every valid AOA program means the same here. `docs/guide/recipes.md` is its
//! reference.

mod compiled;
pub mod dtype;
mod engine;
mod error;
mod expand;
mod finish;
pub mod json;
pub mod library;
mod operation;
mod pattern;
mod prepare;
mod program;
mod state;
mod statement;
mod tensors;
mod token;
mod value;

pub use compiled::{Compiled, Operand, Piece, SourceBox, Step, Target};
pub use error::{Error, Frame, Problem};
pub use program::Program;
pub use tensors::{Tensor, Tensors};
