"""Room simserver/owners."""
