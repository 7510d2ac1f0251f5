"""Room scenarios/common."""
