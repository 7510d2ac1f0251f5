"""Keeping Python's cycle collector away from the tree.

The collector looks through all objects that could be part of a cycle, now and then all of them at once. While it does
nothing else happens: 0.1 to 0.3 s for a million nodes. Nodes are never part of a cycle (a child does not know its
parent). So they are freed without it, and need not be looked through. `gc.freeze` puts everything there is aside for
good; called whenever the tree has grown by some ten thousand nodes, it leaves the collector little to look through.

What it costs: a cycle that is alive at such a moment and becomes garbage later is never freed. There are few of them,
and as many moments as the tree has ten thousands of nodes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["TreeGrowth", "uncollected"]

_STEP_NODES: Final = 20_000


class TreeGrowth:
    """Puts the nodes aside as they become many."""

    def __init__(self) -> None:
        self._frozen_nodes = 0
        self._frozen_beside = 0

    def reached(self, nodes: int) -> None:
        """The tree has `nodes` now. Cheap; to be called often."""
        if nodes - self._frozen_nodes >= _STEP_NODES:
            gc.freeze()
            self._frozen_nodes = nodes
        elif nodes < self._frozen_nodes:
            self._frozen_nodes = nodes

    def building(self, nodes: int) -> None:
        """Another tree, which is built beside it, has `nodes` now; 0 if there is none."""
        if nodes - self._frozen_beside >= _STEP_NODES:
            gc.freeze()
            self._frozen_beside = nodes
        elif nodes < self._frozen_beside:
            self._frozen_beside = nodes


@contextmanager
def uncollected() -> Iterator[None]:
    """Make many nodes without the collector looking through them again and again; put them aside before the end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
