"""The replicated procedures: what a command in the log does to its tables."""
