"""Room simserver/transfer/target."""
