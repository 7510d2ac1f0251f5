"""Room authority/node."""
