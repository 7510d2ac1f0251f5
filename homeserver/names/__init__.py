"""Room homeserver/names."""
