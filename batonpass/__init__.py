"""batonpass: authority over simulated entities, passed between servers like a baton."""
