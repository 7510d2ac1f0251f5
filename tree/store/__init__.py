"""The tree: rows, queries, patterns, transactions, watches, triggers, projections. Pure."""
