"""Room simserver/transfer/source."""
