//! Whole merges: folders in, a folder out, whatever happens in between.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make and read the files of a temporary folder"
)]

mod fixture;
mod folders;
mod mistakes;
mod resume;
mod tokens;
