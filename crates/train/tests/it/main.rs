//! Whole runs on thread ranks: every layout against one rank, every change of layout against none, and what happens when something fails.

mod evaluation;
mod failures;
mod launches;
mod layouts;
mod offload;
mod resume;
mod support;
mod toy;
