//! Arithmetic of models on slices, forward and backward, on a pool of threads.
//!
//! Every kernel takes the [`Pool`] it may use, and slices; nothing here knows ranks, names of parameters or files. Kernels are generic over
//! [`Real`], so that the gradients that train in `f32` are checked against finite differences in `f64`. Results have the same bits for any number of threads.

mod pool;
mod real;

pub use pool::Pool;
pub use real::Real;
