"""Room authority/model."""
