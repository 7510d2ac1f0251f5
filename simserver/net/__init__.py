"""Room simserver/net."""
