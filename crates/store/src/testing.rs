//! Doubles that make a store fail on purpose, and the suite every store passes.
//!
//! [`CrashStore`] stops at the n-th operation, [`FlakyStore`] fails, stalls or damages chosen ones,
//! and [`conformance()`] tries to break what [`Store`](crate::Store) promises. [`BucketServer`] is an object store that fails on purpose, too.

mod bucket;
mod conformance;
mod crash;
mod flaky;

pub use bucket::{BucketServer, Mishap, MishapKind};
pub use conformance::{conformance, pattern};
pub use crash::{CrashPlan, CrashStore, Effect, Leftovers};
pub use flaky::{Fault, FlakyStore, Operation, Rule};

/// The uploads that an answer of S3 lists, as [`Store::uploads`](crate::Store::uploads) reads it.
///
/// # Errors
/// What is wrong with it.
#[cfg(feature = "s3")]
pub fn uploads_in(answer: &str) -> Result<Vec<crate::Upload>, String> {
    let page = crate::object::Page::parse(answer).map_err(|fault| fault.to_string())?;
    Ok(page.uploads)
}
