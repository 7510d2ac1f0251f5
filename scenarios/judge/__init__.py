"""Room scenarios/judge."""
