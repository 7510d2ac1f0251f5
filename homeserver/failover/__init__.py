"""Room homeserver/failover."""
