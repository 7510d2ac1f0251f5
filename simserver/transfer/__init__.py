"""Room simserver/transfer."""
