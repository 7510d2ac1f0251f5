"""Room scenarios/cli."""
