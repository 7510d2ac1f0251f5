"""Room simserver/world."""
