"""Room tree/machine."""
