"""Room tree/raft."""
