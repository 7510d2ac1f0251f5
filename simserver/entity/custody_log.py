"""The custody log: which server simulated what, from when to when, and with which state it came and went.

Every server writes its own, at the moment of starting and stopping, whatever the transfer machinery believes. Put side
by side, the logs of all servers show whether the chain of custody of an entity is whole. It may have an overlap (two
authorities), a hole (none) or a break (a state or tick that goes backwards). Reports are judged by this, not by what
transfers say of themselves.
"""

import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["CustodyLog", "Stint", "custody_file"]

_log = logging.getLogger("batonpass.simserver.entity.custody_log")

MAX_STINTS: Final = 65_536
"""Each stint takes some 0.7 kB: 46 MB of a server that keeps as many. A run that is judged, as that of 10,000 entities
which are moved on and back three times, has fewer on each server."""


@dataclass(slots=True)
class Stint:
    """One uninterrupted time of simulating one entity on one server.

    Ticks are the entity's own count. Times are monotonic nanoseconds; `ended_ns` is 0 while it lasts. The hashes are
    over the whole entity (state, cursors, unprocessed inputs), taken by re-encoding what is in memory.
    """

    entity: str
    server: str
    epoch: int
    sub: int
    started_tick: int
    started_hash: str
    started_ns: int
    first_tick_ns: int = 0
    last_tick_ns: int = 0
    ended_tick: int = 0
    ended_hash: str = ""
    ended_ns: int = 0

    def ended(self, tick: int, state_hash: str, ended_ns: int) -> Self:
        """It has ended so; not after all, with 0 and an empty hash."""
        self.ended_tick, self.ended_hash, self.ended_ns = tick, state_hash, ended_ns
        return self


class CustodyLog:
    """The stints of one server, oldest first; the oldest are forgotten beyond `MAX_STINTS`.

    `note`, if given, is told of every beginning and every end, so that they outlive the server.
    """

    def __init__(self, server: str, note: Callable[[Stint], None] | None = None) -> None:
        self.server = server
        self._note = note
        self._stints: deque[Stint] = deque(maxlen=MAX_STINTS)
        self.started = 0
        self.before_reading: Callable[[], None] | None = None
        """Brings those up to date that are not written with every tick."""

    def start(self, stint: Stint) -> Stint:
        """Note that a stint begins; the entity itself fills in the rest."""
        self._stints.append(stint)
        self.started += 1
        self.changed(stint)
        return stint

    def changed(self, stint: Stint) -> None:
        """A stint has ended, or has not after all."""
        if self._note is None:
            return
        try:
            self._note(stint)
        except OSError:
            # It is evidence, and no state to resume from: which server has the entity must not depend on it.
            _log.exception("a stint of %s could not be written down", stint.entity)

    def to_data(self, after: int = 0) -> list[dict[str, Any]]:
        """The stints from number `after` (counted from 0 since the start of this server) as plain data."""
        if self.before_reading is not None:
            self.before_reading()
        skip = max(0, after - (self.started - len(self._stints)))
        return [asdict(stint) for number, stint in enumerate(self._stints) if number >= skip]


def custody_file(path: Path) -> Callable[[Stint], None]:
    """Writes stints into a file, one line of JSON for each beginning and end; what is written outlives the process."""

    def note(stint: Stint) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(stint)) + "\n")

    return note
