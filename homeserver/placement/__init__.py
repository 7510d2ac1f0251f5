"""Room homeserver/placement."""
