//! Meshes, shardings, and the pieces of a tensor each rank holds.
