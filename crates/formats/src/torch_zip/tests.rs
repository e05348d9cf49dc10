//! Archives as torch writes them, and archives that lie.
