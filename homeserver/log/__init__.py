"""The replicated log as this member sees it: store, barriers, positions, identity."""
