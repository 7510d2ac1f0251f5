"""Copies on other servers, checkpoints on the own disk, and what was put aside."""
