//! The `cairn` command as a user sees it: stdout, stderr and exit code of every verb, and of the usual mistakes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make, damage and read the files of a temporary folder"
)]

mod buckets;
mod compact;
mod convert;
mod demo;
mod diff;
mod edit;
mod ema;
mod fixture;
mod help;
mod hostile;
mod inputs;
mod inspect;
mod keeper;
mod limits;
mod mend;
mod mistakes;
mod output;
mod plan;
mod prune;
mod recipe;
mod report;
mod sim;
mod stats;
mod steps;
mod tokenize;
mod train;
mod transform;
mod verbs;
mod write;
