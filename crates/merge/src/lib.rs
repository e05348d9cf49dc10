//! Models into one: linear, slerp, ties, dare, della and others, streamed through little memory.
