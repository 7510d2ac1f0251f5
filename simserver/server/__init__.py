"""Room simserver/server."""
