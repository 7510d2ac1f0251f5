"""The programs that `baton bench events` runs: each starts its server as a process of its own, and loads it."""
