"""Room tree/data."""
