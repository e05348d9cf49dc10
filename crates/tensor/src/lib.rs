//! Element types, byte layouts, casts and strided copies.
