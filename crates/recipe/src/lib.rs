//! The transform language: how the tensors of a checkpoint become those of a model.
//!
//! A program is compiled against the tensors it will find ([`Compiled`]), without reading them: each target is a list of
//! pieces, and each piece says which box of which source it is and which steps turn that box into the target's.

mod compiled;

pub use compiled::{Compiled, Operand, Piece, SourceBox, Step, Target};
