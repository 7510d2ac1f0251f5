"""Room authority/procedures."""
