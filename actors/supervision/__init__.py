"""Room actors/supervision."""
