"""Room scenarios/players."""
