//! Plans that move a tensor from one sharding to another.
