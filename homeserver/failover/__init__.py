"""Leases, takeovers, clocks, and entities that are abroad."""
