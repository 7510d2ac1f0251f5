"""The entity that this server simulated when it died, or lost its lease: so that it does not kill the next server too.

A world that raises is caught (`simserver.entity.actor`). An end of the process is not: a fault in C code, the
out-of-memory killer, a loop without end. Another server resumes the entity, with the inputs that it died of, and is
killed next. From outside it is not to be seen which of thousands of entities it was. So the server writes down whose
step it begins before it begins it, and takes that back afterwards, in a page of memory that outlives the process. That
is two slices of a `mmap`, half a microsecond of a tick. The next start in the same directory finds the name and keeps
it for an hour.

A step that takes longer than a lease does the same to a server that stays alive. Its entities are given to others while
it computes, and this one with the input that takes so long. So a step counts as a death too if the lease of the server
ran out during it. It must have taken so long that a renewal was due meanwhile (`LeaseKeeper.is_lost_by`). That is so
for all that a world is asked about an entity: `simserver.entity.state` has each of its methods called `at_work`.

A server that is asked for copies says of how many such deaths it knows (`authority.wire.recovery.Collected`), its own
and those it has heard of. Home tells them all to the server that takes the entity over. At `TOO_OFTEN` deaths, of one
server or of several, it is quarantined there, as if its world had raised. One death may be bad luck: some entity is
being simulated at most moments at which a busy server is killed. A server that is not started again says nothing. Home
waits a little for one that may have died of what others have died of (`homeserver.failover.takeover`).

A release has to hold wherever the entity is next, and servers that remember deaths do not hear of it. So each death is
of an epoch, and the state says under which epoch it was released last (`Snapshot.released_epoch`). Deaths under earlier
ones count no more. No clock is needed for that. What a server has died of is resumed under a higher epoch. So all
deaths before a release are of lower ones, also those that a server finds only when it is started long after.
"""

import json
import logging
import mmap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from batonpass.authority.fence import MAX_EPOCH, check_epoch
from batonpass.authority.names import BadName, check_name
from batonpass.authority.wire.recovery import MAX_DEATHS, TOO_OFTEN
from batonpass.crypto.bounded_tables import FifoTable, LruTable
from batonpass.tree.disk.disk import DiskFailed, replace_file

__all__ = ["TOO_OFTEN", "CrashGuard"]

_log = logging.getLogger("batonpass.simserver.entity.crash_guard")

REMEMBERED_S: Final = 3600.0
MAX_ENTITIES: Final = 64
MAX_HEARD: Final = 4096
_BYTES: Final = 256
# After that, where the entities stand for which there is something new in a tick of a batch.
_TOGETHER_BYTES: Final = 8192


class _Death(NamedTuple):
    """A server died of an entity under this epoch; that was found or heard of at this Unix time."""

    at_s: float
    epoch: int


class CrashGuard:
    """The entity whose world is at work, kept in two files of `directory`; without one nothing is kept or known."""

    def __init__(self, directory: Path | None, unix_s: Callable[[], float]) -> None:
        """Reads what an earlier life has left, and says so in the log; `unix_s` says what time it is.

        A server that cannot have the files simulates without them.
        """
        self._file: Final = None if directory is None else directory / "deaths.json"
        self._unix_s: Final = unix_s
        self._deaths: FifoTable[str, list[_Death]] = FifoTable(MAX_ENTITIES)
        # What was heard of others, of entities that this server was given or is about to be given.
        self._heard: LruTable[str, list[_Death]] = LruTable(MAX_HEARD)
        self._page: mmap.mmap | bytearray = bytearray(_BYTES + _TOGETHER_BYTES)
        if directory is not None and self._file is not None:
            try:
                self._page = _mapped(directory / "simulating")
                self._deaths.update(_read(self._file, unix_s()))
            except OSError as error:
                _log.warning("which entity kills this server will not be known: %s", error)
            self._autopsy()

    def _autopsy(self) -> None:
        found = [_left_in(self._page), *_left_together(self._page)]
        self._page[0] = 0
        self.leave_together()
        for entity, epoch in dict(one for one in found if one[0]).items():
            times = self.died(entity, epoch)
            _log.error("this server died while it simulated %s, %d times in an hour", entity, times)

    def died(self, entity: str, epoch: int) -> int:
        """Note a death of an entity under this epoch; of how many this server knows by itself, within the last hour."""
        deaths = self._deaths.setdefault(entity, [])
        deaths.append(_Death(self._unix_s(), epoch))
        del deaths[:-MAX_DEATHS]
        self._write()
        return len(self._lately(deaths))

    @contextmanager
    def simulating(self, entity: str, epoch: int) -> Iterator[None]:
        """While the world is at work on this entity, under a fence of this epoch; perhaps within another such time."""
        before = bytes(self._page[: 1 + self._page[0]])
        self.enter(entity, epoch)
        try:
            yield
        finally:
            self._page[: len(before)] = before

    def enter(self, entity: str, epoch: int) -> None:
        """The world begins to work on this entity, under a fence of this epoch."""
        line = f"{entity} {epoch}".encode()
        size = len(line)
        self._page[1 : 1 + size] = line
        self._page[0] = size

    def leave(self) -> None:
        """It has come back."""
        self._page[0] = 0

    def enter_together(self, entities: Iterable[tuple[str, int]]) -> None:
        """The world begins to work on a batch, in which there is something new for these, under fences of these epochs.

        At most `MAX_ENTITIES` of them are written down. If the server dies of the tick, it has died of each of them.
        """
        lines = b"\n".join(f"{entity} {epoch}".encode() for entity, epoch in islice(entities, MAX_ENTITIES))
        size = min(len(lines), _TOGETHER_BYTES - 2)
        start = _BYTES + 2
        self._page[start : start + size] = lines[:size]
        self._page[_BYTES:start] = size.to_bytes(2, "big")

    def leave_together(self) -> None:
        """It has come back."""
        self._page[_BYTES : _BYTES + 2] = b"\0\0"

    def deaths(self, entity: str) -> list[int]:
        """Under which epochs servers have died of an entity within the last hour, an epoch for each death, in order.

        This server, and those of which it has heard.
        """
        own, heard = self._deaths.get(entity), self._heard.get(entity)
        if not (own or heard):
            return []
        # What was heard has some of its own, and an entity has one authority in each epoch.
        known = Counter(self._lately(own or ())) | Counter(self._lately(heard or ()))
        return sorted(known.elements())[-MAX_DEATHS:]

    def heard(self, entity: str, deaths: Iterable[int]) -> None:
        """Under these epochs servers have died of it, this one included, as its home instance has heard."""
        now_s = self._unix_s()
        # What was heard before is no younger for being heard again.
        since = {death.epoch: death.at_s for death in self._heard.get(entity, ())}
        if heard := [_Death(since.get(epoch, now_s), epoch) for epoch in deaths]:
            self._heard[entity] = heard

    def _lately(self, deaths: Iterable[_Death]) -> list[int]:
        now_s = self._unix_s()
        return [death.epoch for death in deaths if _is_remembered(death.at_s, now_s)]

    def verdict(self, entity: str, released_epoch: int = 0) -> str:
        """Why no server should simulate it until people have looked at it; empty if nothing is known against it.

        `released_epoch` is the epoch under which they have done so last: what was before does not count.
        """
        deaths = sum(epoch >= released_epoch for epoch in self.deaths(entity))
        if deaths < TOO_OFTEN:
            return ""
        return f"servers died, or lost their leases, {deaths} times while they simulated it"

    def forget(self, entity: str) -> None:
        """People have looked at it: its next death is its first. Others know that by what its state says."""
        self._heard.pop(entity, None)
        if self._deaths.pop(entity, None) is not None:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        try:
            replace_file(self._file, json.dumps(self._deaths).encode())
        except (OSError, DiskFailed) as error:
            _log.warning("%s is not written: %s", self._file, error)


def _mapped(file: Path) -> mmap.mmap:
    with file.open("a+b") as opened:
        opened.truncate(_BYTES + _TOGETHER_BYTES)
        return mmap.mmap(opened.fileno(), _BYTES + _TOGETHER_BYTES)


def _left_in(page: mmap.mmap | bytearray) -> tuple[str, int]:
    """The name and the epoch that were left there; the name is empty if there is none that could be one."""
    return _read_line(bytes(page[1 : 1 + page[0]]))


def _left_together(page: mmap.mmap | bytearray) -> list[tuple[str, int]]:
    """The same of a batch."""
    size = int.from_bytes(page[_BYTES : _BYTES + 2], "big")
    return [_read_line(line) for line in bytes(page[_BYTES + 2 : _BYTES + 2 + size]).splitlines()]


def _read_line(line: bytes) -> tuple[str, int]:
    try:
        name, _, epoch = line.decode().partition(" ")
        return (check_name(name), check_epoch(int(epoch))) if name else ("", 0)
    except (BadName, ValueError, OverflowError):
        return "", 0


def _is_remembered(at_s: float, now_s: float) -> bool:
    # A name that was written down by a clock that was ahead is believed for an hour too.
    return abs(now_s - at_s) < REMEMBERED_S


def _read(file: Path, now_s: float) -> dict[str, list[_Death]]:
    """The deaths of the last hour; none if the file is not what was written, or there is none."""
    try:
        rows = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(rows, Mapping):
        return {}
    recent = {
        entity: [death for row in deaths if (death := _death_in(row)) and _is_remembered(death.at_s, now_s)]
        for entity, deaths in rows.items()
        if isinstance(deaths, list)
    }
    return {entity: deaths for entity, deaths in recent.items() if deaths}


def _death_in(row: Any) -> _Death | None:
    match row:
        case [int() | float() as at_s, int() as epoch] if 0 <= epoch <= MAX_EPOCH:
            return _Death(at_s, epoch)
        case _:
            return None
