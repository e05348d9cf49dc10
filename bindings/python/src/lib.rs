//! The native module behind `import cairn`: Python objects in, the Rust core at work without the interpreter's lock.
//!
//! Memory crosses the border as one-dimensional `uint8` numpy arrays, borrowed for the time of a call; shapes and placement travel
//! beside it as a `Spec`. Everything framework-specific is plain Python on top.

use pyo3::prelude::*;

/// The native module.
#[pymodule]
mod _cairn {
    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
