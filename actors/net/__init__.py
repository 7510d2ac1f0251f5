"""Room actors/net."""
