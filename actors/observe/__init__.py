"""Room actors/observe."""
