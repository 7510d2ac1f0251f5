"""Room homeserver/server."""
