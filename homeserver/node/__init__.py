"""Room homeserver/node."""
