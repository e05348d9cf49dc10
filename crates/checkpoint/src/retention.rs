//! Which steps of a run stay, and the deletion of the rest.
//!
//! A policy is a value ([`Keep`]), a pruning is a plan before it is an action ([`plan`] → [`PrunePlan`] → [`prune`]). Four things hold
//! whatever the policy says: the newest good step stays, a step with a tag stays, a damaged step stays (it is evidence, and perhaps
//! can be repaired), and damaged steps are not counted, so that good ones stay in their place.
//!
//! # Readers
//!
//! A step goes in two moves. First its `COMMIT` is renamed to `DELETED`, by way of `HIDDEN` while the pruning looks again: nobody opens the step any more, and whoever has it open reads
//! on. Then, after [`Keep::grace`], its files go. A reader that still needs one of them is told that the step was deleted
//! ([`Error::Deleted`](crate::Error::Deleted)), never that it is damaged. What must not go at all is kept by a tag.

mod delete;
mod facts;
mod keep;
mod known;
mod plan;

pub(crate) use delete::delete_pins;
pub use delete::prune;
pub use keep::{Abandoned, Best, Goal, Keep, Within};
pub use known::Pruner;
pub(crate) use known::Known;
pub use plan::{PrunePlan, plan};
