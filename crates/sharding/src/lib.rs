//! Meshes, shardings, and the pieces of a tensor each rank holds.
//!
//! A [`Mesh`] names axes over ranks. A [`Sharding`] says how those axes cut a tensor; a [`TensorSpec`]
//! adds the element type and the shape, and answers: what does this rank hold ([`Piece`]), where does it
//! lie in the rank's buffer ([`LocalBox`]), who else holds the same ([`Replica`]), and who holds a given
//! region ([`Cell`]). Layouts no mesh describes are [`Listed`].
//!
//! ```
//! use cairn_sharding::{Mesh, TensorSpec};
//! let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
//! let spec = TensorSpec::parse(&mesh, "f32[10, 6@tp | flat(dp)]")?;
//! // Rank 1 is (dp 0, tp 1): the first half of the elements of columns 2 and 3.
//! assert_eq!(spec.pieces(1)[0].to_string(), "0:10,2:2#0:10");
//! assert_eq!(spec.local_shape(1), Some(vec![10]));
//! # Ok::<(), cairn_sharding::Error>(())
//! ```

mod cells;
mod error;
mod fallback;
mod flat;
mod listed;
mod local;
mod mesh;
mod piece;
mod placement;
mod region;
mod replica;
mod sharding;
mod spec;
mod split;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use cells::Cell;
pub use error::Error;
pub use fallback::{GivenUp, GivenUpDim, fallback_to_largest_axis};
pub use listed::{Listed, MAX_LISTED_PIECES};
pub use mesh::{Axis, MAX_AXES, MAX_AXIS_NAME_BYTES, MAX_RANKS, Mesh};
pub use piece::{LocalBox, Piece};
pub use placement::Placement;
pub use region::Region;
pub use replica::Replica;
pub use sharding::{DimSharding, MAX_GROUPS, Sharding};
pub use spec::{Distribution, MAX_DIMS, TensorSpec};
pub use split::chunk;
