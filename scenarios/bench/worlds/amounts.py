"""How many entities are measured. Nothing is imported here: workers of other environments read it too."""

__all__ = ["ACROSS", "AGENTS", "CURVE", "EACH", "MANY", "NEAR_PERCENT", "SERVERS"]

ACROSS = 1_000
"""Entities that cross a border in one second."""

CURVE = (1_000, 10_000, 50_000, 100_000, 200_000)
"""Boids in a tick."""
AGENTS = 2_000
"""Boids beside Mesa's."""
MANY = 100_000
"""Entities of which copies are sent."""
EACH = 2_000
"""Entities of each of several servers in a row."""
SERVERS = (1, 2, 4, 8)
NEAR_PERCENT = (1, 5, 10, 25, 50)
"""Of the entities of a server: how many are within reach of a border."""
