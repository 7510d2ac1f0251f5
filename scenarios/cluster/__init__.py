"""Room scenarios/cluster."""
