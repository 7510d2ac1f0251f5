"""Room homeserver/transfer."""
