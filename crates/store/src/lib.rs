//! Bytes under keys, published atomically.
