"""What is durable: the journal and its mark, snapshots, copies of the log."""
