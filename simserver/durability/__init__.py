"""Room simserver/durability."""
