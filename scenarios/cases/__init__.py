"""Room scenarios/cases."""
