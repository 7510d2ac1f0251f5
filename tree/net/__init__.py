"""Room tree/net."""
