//! Timelines as pictures: a row for each stage, time to the right.

mod svg;
mod text;

pub use svg::{MAX_DRAWN, svg};
pub use text::{Stretch, rows};
