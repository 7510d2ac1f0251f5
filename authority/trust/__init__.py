"""Room authority/trust."""
