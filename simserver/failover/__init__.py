"""Room simserver/failover."""
