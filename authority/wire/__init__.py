"""Room authority/wire."""
