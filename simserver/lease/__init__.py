"""Room simserver/lease."""
