"""What the search of hand-overs remembers: what it met, by number, and what an event did to it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from batonpass.authority.fence import Fence
from batonpass.authority.wire.transfer import Message
from batonpass.scenarios.simulation.search.ports import Note

__all__ = ["Envelope", "HostChange", "HostMemory", "LogDecision", "Numbering"]


class Envelope(NamedTuple):
    """A message that was sent."""

    sender: str
    to: str
    message: Message
    about: str
    """The transfer, if it is about one."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """What the search must know of one state of one host."""

    saved: tuple[Any, ...]
    fence: Fence | None
    is_running: bool
    snapshot: bytes
    has_pending: bool
    leaving: str
    """The transfer by which it is leaving."""
    group: tuple[str, ...]
    unreported: tuple[str, ...]
    notes: tuple[Note | None, Note | None]
    journal: tuple[int, ...]
    phase: str
    staged: tuple[tuple[str, str], ...]
    wondering: tuple[str, ...]
    incarnation: int


@dataclass(frozen=True, slots=True)
class HostChange:
    """What an event did to one host."""

    after: int
    sent: tuple[int, ...]
    begun: tuple[tuple[Fence, str], ...]
    acknowledged: int
    violation: str = ""


class LogDecision(NamedTuple):
    """What an event did to the log."""

    log: int
    sent: tuple[int, ...]
    violation: str


class Numbering:
    """Numbers things as they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.things: list[Any] = []

    def number(self, key: Any, thing: Any) -> int:
        """The number of what has this key; when it is new, of `thing`, or of what that makes."""
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.things)
            self.things.append(thing() if callable(thing) else thing)
        return known
