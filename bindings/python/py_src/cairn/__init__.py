"""Keeps the state of large-model training."""
