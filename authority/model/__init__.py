"""What the log holds: records, standings, rules, ownership, addresses."""
