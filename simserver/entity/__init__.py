"""Entities on this server: state, inputs, sleep, journal, the actor of each, and their table."""
