"""The custody log: which server simulated what, from when to when, and with which state it came and went.

Every server writes its own, at the moment of starting and stopping, whatever the transfer machinery believes. Put side
by side, the logs of all servers show whether the chain of custody of an entity is whole. It may have an overlap (two
authorities), a hole (none) or a break (a state or tick that goes backwards). Reports are judged by this, not by what
transfers say of themselves.
"""

import json
import logging
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from errno import ENOSPC
from os import SEEK_END
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, Self, cast
from weakref import finalize

__all__ = ["CustodyLog", "Stint", "custody_file"]

_log = logging.getLogger("batonpass.simserver.entity.custody_log")

MAX_STINTS: Final = 65_536
"""A run that is judged has fewer on each server, as that of 10,000 entities which are moved on and back three times."""
PACKED_STINTS: Final = 256
"""Stints of lives that are over are written to a file by this number, which takes a millisecond: 150 bytes each there,
in place of 600 in memory. Most of that is their two hashes."""
_BLOCKS_OF_A_FILE: Final = 64


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
    number: int = -1
    """Its place in the log of its server, counted from 0; it is no part of what the log says."""

    def row(self) -> dict[str, Any]:
        """What the log says of it, as plain data."""
        return {name: getattr(self, name) for name in _SAID}

    def ended(self, tick: int, state_hash: str, ended_ns: int) -> Self:
        """It has ended so; not after all, with 0 and an empty hash."""
        self.ended_tick, self.ended_hash, self.ended_ns = tick, state_hash, ended_ns
        return self


_SAID: Final = tuple(field.name for field in fields(Stint) if field.name != "number")


@dataclass(frozen=True, slots=True)
class _Packed:
    """Stints to which nothing is added any more, in no order; `last` is the highest of their numbers.

    They are in a file at a place, or here while no file can be written.
    """

    last: int
    file: "_UnnamedFile | None"
    begin: int
    size_bytes: int
    rows: bytes = b""

    def read(self) -> list[tuple[int, dict[str, Any]]]:
        """Their numbers and what the log says of them. Raises OSError."""
        rows = self.rows
        if self.file is not None:
            rows = self.file.read(self.begin, self.size_bytes)
        return [(number, dict(zip(_SAID, said, strict=True))) for number, *said in json.loads(zlib.decompress(rows))]


class _UnnamedFile:
    """A file in a directory, of which nothing is left when no block of it is kept, or the process ends."""

    def __init__(self, directory: Path) -> None:
        self._io: Final = cast(BinaryIO, TemporaryFile(dir=directory, buffering=0))  # noqa: SIM115
        finalize(self, self._io.close)

    def append(self, data: bytes) -> int:
        """Where it is from now on. Raises OSError."""
        begin = self._io.seek(0, SEEK_END)
        if self._io.write(data) < len(data):
            raise OSError(ENOSPC, "a part of it has found no room")
        return begin

    def read(self, begin: int, size_bytes: int) -> bytes:
        """What is there. Raises OSError."""
        self._io.seek(begin)
        return self._io.read(size_bytes)


class _PackedFiles:
    """Where packed stints are: in files, each with some of the blocks of them, so that room is given back."""

    def __init__(self, directory: Path | None) -> None:
        self._directory: Final = directory
        self._file: _UnnamedFile | None = None
        self._blocks = 0

    def pack(self, stints: Iterable[Stint]) -> _Packed:
        """Write these down, if there is a directory and room."""
        numbered = [[stint.number, *stint.row().values()] for stint in stints]
        last, rows = max(row[0] for row in numbered), zlib.compress(json.dumps(numbered).encode(), level=1)
        try:
            if self._directory is not None and self._blocks % _BLOCKS_OF_A_FILE == 0:
                self._file = _UnnamedFile(self._directory)
            if self._file is not None:
                begin = self._file.append(rows)
                self._blocks += 1
                return _Packed(last, self._file, begin, len(rows))
        except OSError as error:
            _log.warning("custody terms that are over stay in memory, as they cannot be written: %s", error)
        return _Packed(last, None, 0, len(rows), rows)


class CustodyLog:
    """The stints of one server, oldest first; the oldest are forgotten beyond `MAX_STINTS`.

    `note`, if given, is told of every beginning and every end, so that they outlive the server. Those of lives that
    are over are in files in the `directory`, if there is one, which this process alone reads.
    """

    def __init__(self, server: str, note: Callable[[Stint], None] | None = None, directory: Path | None = None) -> None:
        self.server = server
        self._note = note
        self._files: Final = _PackedFiles(directory)
        # By their numbers: those of the living, those that are over, and those that are packed, too.
        self._open: dict[int, Stint] = {}
        self._over: dict[int, Stint] = {}
        self._packed: list[_Packed] = []
        self.started = 0
        self.before_reading: Callable[[], None] | None = None
        """Brings those up to date that are not written with every tick."""

    def start(self, stint: Stint) -> Stint:
        """Note that a stint begins; the entity itself fills in the rest."""
        stint.number = self.started
        self._open[stint.number] = stint
        self.started += 1
        self._open.pop(self._first - 1, None)
        self._over.pop(self._first - 1, None)
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

    def over(self, stint: Stint | None) -> None:
        """Nothing of a stint changes any more: its life is over, or has another one; None if none had begun."""
        if stint is None or self._open.pop(stint.number, None) is None:
            # Or it began so long ago that it is forgotten.
            return
        self._over[stint.number] = stint
        if len(self._over) >= PACKED_STINTS:
            self._packed = [packed for packed in self._packed if packed.last >= self._first]
            self._packed.append(self._files.pack(self._over.values()))
            self._over = {}

    def to_data(self, after: int = 0) -> list[dict[str, Any]]:
        """The stints from number `after` (counted from 0 since the start of this server) as plain data."""
        if self.before_reading is not None:
            self.before_reading()
        after = max(after, self._first)
        rows: dict[int, dict[str, Any]] = {}
        for packed in self._packed:
            try:
                rows.update(packed.read() if packed.last >= after else ())
            except OSError:
                _log.exception("some stints cannot be read any more")
        rows |= {stint.number: stint.row() for stint in (*self._over.values(), *self._open.values())}
        return [row for number, row in sorted(rows.items()) if number >= after]

    @property
    def _first(self) -> int:
        """The number of the oldest that is not forgotten."""
        return max(0, self.started - MAX_STINTS)


def custody_file(path: Path) -> Callable[[Stint], None]:
    """Writes stints into a file, one line of JSON for each beginning and end; what is written outlives the process."""

    def note(stint: Stint) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(stint.row()) + "\n")

    return note
