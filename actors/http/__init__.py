"""Room actors/http."""
