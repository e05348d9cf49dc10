//! Builds, tests and measures everything.

fn main() {}
