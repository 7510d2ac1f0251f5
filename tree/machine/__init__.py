"""The replicated state machine: commands, sessions, snapshots of its state. Pure."""
