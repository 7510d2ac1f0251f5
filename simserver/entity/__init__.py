"""Room simserver/entity."""
