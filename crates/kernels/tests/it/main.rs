//! Every kernel against a plain computation, finite differences in `f64`, and itself on other numbers of threads.

mod attention;
mod elementwise;
mod embedding;
mod gates;
mod gemm;
mod indexing;
mod linear;
mod losses;
mod norm;
mod optimizers;
mod random;
mod rotary;
mod support;
