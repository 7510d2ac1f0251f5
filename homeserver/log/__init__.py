"""Room homeserver/log."""
