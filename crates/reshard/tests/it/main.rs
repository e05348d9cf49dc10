//! Plans are right, minimal, balanced and deterministic, whatever the layouts.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod balance;
mod collectives;
mod oracle;
mod properties;
mod refusals;
mod scale;
