//! The native module behind `import cairn`: Python objects in, the Rust core at work without the interpreter's lock.
//!
//! Memory crosses the border as one-dimensional `uint8` numpy arrays, borrowed for the time of a call; shapes and placement travel
//! beside it as a `Spec`. Plain values cross as JSON text. Everything that knows a framework is plain Python on top.

mod arguments;
mod averaging;
mod census;
mod derived;
mod errors;
mod keeper;
mod launch;
mod memory;
mod outline;
mod place;
mod recipe;
mod report;
mod retention;
mod run;
mod saving;
mod source;
mod spec;

use pyo3::prelude::*;

/// The native module.
#[pymodule]
mod _cairn {
    #[pymodule_export]
    use crate::averaging::Averaging;
    #[pymodule_export]
    use crate::census::census;
    #[pymodule_export]
    use crate::derived::casts_hold;
    #[pymodule_export]
    use crate::launch::launch;
    #[pymodule_export]
    use crate::memory::{Memory, Promise};
    #[pymodule_export]
    use crate::outline::Outline;
    #[pymodule_export]
    use crate::place::open_place;
    #[pymodule_export]
    use crate::retention::Policy;
    #[pymodule_export]
    use crate::run::Run;
    #[pymodule_export]
    use crate::saving::Saving;
    #[pymodule_export]
    use crate::source::{Counter, Source};
    #[pymodule_export]
    use crate::spec::Spec;

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
