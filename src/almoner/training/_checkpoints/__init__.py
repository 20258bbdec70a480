"""Checkpoints: the state of a run, and the folders that keep it."""
