//! State saved by many ranks, committed safely, loaded on any layout.
