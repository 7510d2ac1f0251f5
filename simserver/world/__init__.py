"""Worlds: what users write, and how a step of it is taken and checked."""
