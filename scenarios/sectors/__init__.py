"""Room scenarios/sectors."""
