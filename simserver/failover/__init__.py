"""Takeovers of entities whose server is dead, and logs that were restored from an older copy."""
