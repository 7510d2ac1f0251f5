"""Room tree/disk."""
