"""Room tree/store."""
