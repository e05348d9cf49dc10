//! Plans that move a tensor from one sharding to another.
//!
//! [`plan`] compares two layouts of a tensor, on any meshes, and says which rank sends which box to which
//! ranks. A [`Plan`] is plain data: print it, price it with [`Plan::cost`], compare it, then run it, here
//! with [`execute`] or over a network elsewhere.
//!
//! ```
//! use cairn_reshard::{Options, execute, plan};
//! use cairn_sharding::{Mesh, TensorSpec};
//!
//! let mesh = Mesh::new([("tp", 2)])?;
//! let rows = TensorSpec::parse(&mesh, "u8[2@tp, 2]")?;
//! let columns = TensorSpec::parse(&mesh, "u8[2, 2@tp]")?;
//! let plan = plan(&rows, &columns, &Options::default())?;
//! assert_eq!(plan.cost().moved_bytes, 2);
//!
//! let mut targets = vec![vec![]; 2];
//! execute(&plan, &[[1, 2], [3, 4]], &mut targets)?;
//! assert_eq!(targets, [[1, 3], [2, 4]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! How it works, in the order of the files: `atoms` cuts the target into boxes that have one set of
//! source shards; `planner` decides who sends each (or, with `terms`, who reduces it); `steps` groups the
//! actions by connected ranks; `collective` names what each group does.

mod atoms;
mod collective;
mod cost;
mod cut;
mod error;
mod execute;
mod load;
mod plan;
mod planner;
mod steps;
mod terms;
mod text;

pub use collective::Collective;
pub use cost::Cost;
pub use error::Error;
pub use execute::execute;
pub use plan::{Action, Fill, Identity, Plan, Reduction, Step, Transfer};
pub use planner::{Options, Planner, plan};
