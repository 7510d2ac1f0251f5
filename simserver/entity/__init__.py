"""Entities on this server: state, inputs, quarantine, sleep, the actor of each, their table, and the commit feed."""
