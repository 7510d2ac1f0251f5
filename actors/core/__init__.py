"""Room actors/core."""
