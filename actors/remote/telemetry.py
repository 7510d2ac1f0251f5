"""What distribution tells of itself (`system.telemetry`), beside the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from batonpass.actors.core.system import System

NODE_UP: Final = ("actors", "node", "up")
"""A connection is open. Metadata: `node`."""

NODE_DOWN: Final = ("actors", "node", "down")
"""A connection is lost or could not be opened. Metadata: `node`, `why`."""


def tell_up(system: System, node: str) -> None:
    """A connection is open."""
    system.telemetry.execute(NODE_UP, {}, {"node": node})


def tell_down(system: System, node: str, why: str) -> None:
    """A connection is lost."""
    system.telemetry.execute(NODE_DOWN, {}, {"node": node, "why": why})
