"""One program per subject; see `scenarios.bench.side_by_side`."""
