"""Room authority/placement."""
