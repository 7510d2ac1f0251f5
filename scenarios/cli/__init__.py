"""The command `baton`."""
