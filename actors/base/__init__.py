"""Room actors/base."""
