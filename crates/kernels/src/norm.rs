//! Norms of rows: root mean square, and mean with deviation.

mod layer;
mod rms;

pub use layer::LayerNorm;
pub use rms::RmsNorm;
