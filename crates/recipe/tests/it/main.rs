//! The transform language from outside: what programs come to, element by element, and what is said of wrong ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod array;
mod deepseek;
mod errors;
mod guide;
mod large;
mod operations;
mod properties;
mod reverse;
mod states;
