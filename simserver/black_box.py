"""Whom this server was simulating when it died: so that what kills processes does not kill one server after the other.

A world that raises is caught (`simserver.entity`). What ends the process is not: a fault in C code, the out-of-memory
killer, a loop without end. The entity is gone on with elsewhere, with the inputs that it died of, and kills that server
next. Nobody can tell from outside which of thousands of entities it was, so the server writes down whose step it has
begun before it begins it, and takes that back afterwards, in a page of memory that outlives the process: two slices of
a `mmap`, half a microsecond of a tick. Whoever starts in the same directory finds the name and keeps it for an hour.

Who is asked for copies says how often it has died so (`authority.recovery_messages.Collected`), and home tells the sum
to whoever is to go on with the entity. At `TOO_OFTEN` deaths, of one server or of several, it stands still there, as
if its world had raised: one death may be bad luck, since somebody is being simulated at most moments at which a busy
server is killed. A server that is not started again says nothing.
"""

import json
import logging
import mmap
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from authority.names import BadName, check_name
from tree.disk import DiskFailed, replace_file

__all__ = ["TOO_OFTEN", "BlackBox"]

_log = logging.getLogger("simserver.black_box")

TOO_OFTEN: Final = 2
REMEMBERED_S: Final = 3600.0
MAX_ENTITIES: Final = 64
MAX_DEATHS: Final = 8
MAX_HEARD: Final = 4096
_BYTES: Final = 256


class BlackBox:
    """The entity whose world is at work, kept in two files of `directory`; without one nothing is kept or known."""

    def __init__(self, directory: Path | None = None, now_s: float = 0.0) -> None:
        """Reads what an earlier life has left, and says so in the log; `now_s` is Unix time.

        Whoever cannot have the files is a server all the same: it simulates without them.
        """
        self._file: Final = None if directory is None else directory / "deaths.json"
        self._deaths: dict[str, list[float]] = {}
        # What was heard of others, of entities that this server was given or is about to be given.
        self._heard: OrderedDict[str, int] = OrderedDict()
        self._page: mmap.mmap | bytearray = bytearray(_BYTES)
        if directory is not None and self._file is not None:
            try:
                self._page = _mapped(directory / "simulating")
                self._deaths = _read(self._file, now_s)
            except OSError as error:
                _log.warning("who kills this server will not be known: %s", error)
            self._autopsy(now_s)

    def _autopsy(self, now_s: float) -> None:
        entity = _name_in(self._page)
        self._page[0] = 0
        if not entity:
            return
        deaths = self._deaths.setdefault(entity, [])
        deaths.append(now_s)
        del deaths[:-MAX_DEATHS]
        while len(self._deaths) > MAX_ENTITIES:
            del self._deaths[next(iter(self._deaths))]
        _log.error("this server died while it simulated %s, %d times in an hour", entity, len(deaths))
        self._write()

    @contextmanager
    def simulating(self, entity: str) -> Iterator[None]:
        """While the world is at work on this entity."""
        self.enter(entity)
        try:
            yield
        finally:
            self.leave()

    def enter(self, entity: str) -> None:
        """The world begins to work on this entity."""
        name = entity.encode()
        size = len(name)
        self._page[1 : 1 + size] = name
        self._page[0] = size

    def leave(self) -> None:
        """It has come back."""
        self._page[0] = 0

    def deaths(self, entity: str) -> int:
        """How often this server has died of an entity lately."""
        return len(self._deaths.get(entity, ()))

    def heard(self, entity: str, deaths: int) -> None:
        """So often servers have died of it, this one included, as its home instance has heard."""
        if deaths:
            self._heard[entity] = deaths
            self._heard.move_to_end(entity)
            if len(self._heard) > MAX_HEARD:
                self._heard.popitem(last=False)

    def verdict(self, entity: str) -> str:
        """Why nobody should simulate it until people have looked at it; empty if nothing is known against it."""
        deaths = max(self.deaths(entity), self._heard.get(entity, 0))
        return f"servers died {deaths} times while they simulated it" if deaths >= TOO_OFTEN else ""

    def forget(self, entity: str) -> None:
        """People have looked at it: its next death is its first."""
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
        opened.truncate(_BYTES)
        return mmap.mmap(opened.fileno(), _BYTES)


def _name_in(page: mmap.mmap | bytearray) -> str:
    """The name that was left there, empty if there is none that could be one."""
    try:
        return check_name(bytes(page[1 : 1 + page[0]]).decode()) if page[0] else ""
    except (BadName, UnicodeDecodeError):
        return ""


def _read(file: Path, now_s: float) -> dict[str, list[float]]:
    """The deaths of the last hour; none if the file is not what was written, or there is none."""
    try:
        rows = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(rows, Mapping):
        return {}
    # Who was written down by a clock that was ahead is believed for an hour too.
    recent = {
        entity: [at_s for at_s in deaths if isinstance(at_s, int | float) and abs(now_s - at_s) < REMEMBERED_S]
        for entity, deaths in rows.items()
        if isinstance(deaths, list)
    }
    return {entity: deaths for entity, deaths in recent.items() if deaths}
