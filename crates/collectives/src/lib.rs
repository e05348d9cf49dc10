//! Groups of ranks that work together: reduce, gather, exchange, broadcast, and move tensors between layouts.
//!
//! A [`Communicator`] is one rank's place in a group. Every rank of the group makes the same calls in the same order; each call is
//! made by all (`# Collective`), except [`send`](Communicator::send) and [`receive`](Communicator::receive).
//!
//! | to | use |
//! |---|---|
//! | run ranks as threads of this process | [`threads::run`] |
//! | run ranks as processes, or over anything that carries messages | [`messages`] |
//! | make groups along an axis of a mesh | [`along`], [`Communicator::split`] |
//! | combine and exchange tensors | [`Communicator`], and [`numbers`] for slices of them |
//! | hand out nested structures | [`broadcast_tree`], [`broadcast_value`], [`gather_values`] |
//! | go on working meanwhile | [`Background`] |
//! | change the layout of tensors that live | [`redistribute`] |
//!
//! ```
//! use cairn_collectives::{threads, Communicator};
//! use cairn_tensor::{DType, ReduceOp};
//!
//! let sums = threads::run(4, threads::Options::default(), |group| {
//!     let mut bytes = (group.rank() as f32).to_le_bytes();
//!     group.all_reduce(DType::F32, ReduceOp::Sum, &mut bytes)?;
//!     Ok::<_, cairn_collectives::Error>(f32::from_le_bytes(bytes))
//! })?;
//! assert_eq!(sums, [6.0; 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Three promises hold for every kind of communicator, and one suite tests them (`testing::conformance`):
//!
//! * **The same bits.** Terms are combined in the order of the ranks, whatever arrives first, so a group of the same size always gives the same
//!   result. Types narrower than `f32` are summed in `f32` and rounded once.
//! * **No silent waiting.** A call that somebody does not make ends with an error that names who is missing; calls that do not belong together
//!   end with an error that shows both.
//! * **One for all.** A rank that fails or panics ends the calls of all others at once, with its reason.

mod background;
mod call;
mod communicator;
mod error;
mod mesh;
pub mod messages;
pub mod numbers;
mod redistribute;
mod reduce;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod threads;
mod tree;

pub use background::{Background, Pending};
pub use communicator::Communicator;
pub use error::Error;
pub use mesh::along;
pub use redistribute::redistribute;
pub use tree::{Tree, broadcast_tree, broadcast_value, gather_values};
