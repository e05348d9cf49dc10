//! Arithmetic of models on slices, forward and backward, on a pool of threads.
//!
//! Every kernel takes the [`Pool`] it may use, and slices; nothing here knows ranks, names of parameters or files. Kernels are generic over
//! [`Real`], so that the gradients that train in `f32` are checked against finite differences in `f64`. Results have the same bits for any number of threads.
//!
//! | to | use |
//! |---|---|
//! | multiply matrices | [`gemm::matmul`], and [`linear`] for layers |
//! | attend | [`attention`], with positions from [`rotary`] |
//! | normalise | [`norm`] |
//! | gate and activate | [`swiglu`], [`gelu`], [`softmax`] |
//! | read and write rows by index | [`embedding`], [`indexing`] |
//! | measure predictions | [`cross_entropy`] |
//! | draw random numbers, drop elements | [`random`], [`dropout`] |
//! | combine flat memory, change its type | [`elementwise`] |
//! | step | [`adamw`], [`sgd`] |
//!
//! Memory in between comes from the pool as a [`Buffer`], and goes back there. Slices are matrices row by row. Gradients of parameters are added to what is there, gradients of inputs are written, unless a kernel says otherwise.
//! Lengths that do not fit together are mistakes of the caller, and panic.

pub mod adamw;
pub mod attention;
mod buffer;
mod columns;
pub mod cross_entropy;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
mod exp;
mod exponentials;
pub mod gelu;
pub mod gemm;
pub mod indexing;
pub mod linear;
pub mod norm;
mod pool;
pub mod random;
mod real;
mod reduce;
pub mod rotary;
pub mod sgd;
pub mod softmax;
pub mod swiglu;

pub use buffer::Buffer;
pub use pool::Pool;
pub use real::Real;
