"""Room actors/registry."""
