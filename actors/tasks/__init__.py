"""Room actors/tasks."""
