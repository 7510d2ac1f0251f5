"""How many entities are measured. Nothing is imported here: workers of other environments read it too."""

__all__ = ["ACROSS", "AGENTS", "CURVE", "MANY"]

ACROSS = 1_000
"""Entities that cross a border in one second."""

CURVE = (1_000, 10_000, 50_000, 100_000, 200_000)
"""Boids in a tick."""
AGENTS = 2_000
"""Boids beside Mesa's."""
MANY = 100_000
"""Entities of which copies are sent."""
