"""The last position of its home instance's log that this server was told of, kept over restarts.

It is a signed word (`authority.trust.signed_positions`) that is shown again with every renewal of the lease. A home
whose log was restored from an older copy is found out by it. The file is written beside everything else, a moment after
the word has come: a renewal must not wait for a disk. Without the file, this server follows whatever log its home
instance has: an operator who wants that removes it.

Beside it stands where the log was by whatever homeservers have sealed for this server since (`LogPlace`): that comes
with every decision. It proves nothing to others, and is kept so that what was decided since the last signed word
counts. A log that was restored begins with an office of its own, so what is heard of that does not displace what was
before.

If that log went back, what it has signed is put in doubt until another is followed. What this server has may have been
given to it by that log alone (`simserver.failover.log_rollback`).

Beside those stands the last signed word of every other instance on where *its* log stood, under each of its last
offices. This server was told of it with entities that came from there, and with whatever the homeservers there send. It
is for them that this is kept. Other hearers may have died, and a log that they restored from an older copy is found out
by it, unless what that log says displaces it.
"""

import logging
from collections import Counter
from pathlib import Path
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import MessageError
from batonpass.authority.trust.signed_positions import MAX_HEARD_OFFICES, LogPlace
from batonpass.authority.wire.base import MAX_TOKEN_CHARS
from batonpass.authority.wire.lease import MAX_POSITION_CHARS
from batonpass.authority.wire.queries import MAX_FOREIGN_LOGS, MAX_OFFICES_ABROAD, place_said_untrusted
from batonpass.tree.disk.disk import DiskFailed, replace_file

__all__ = ["LogWatermark"]

_log = logging.getLogger("batonpass.simserver.lease.log_watermark")

WRITE_EVERY_S: Final = 0.5
# What a line begins with that is no word of another instance: no token has a space.
_DOUBTFUL: Final = "doubtful "


class LogWatermark:
    """What is known of the home instance's log; without a `file`, as long as this lives."""

    def __init__(self, clock: Clock, file: Path | None = None) -> None:
        self._clock: Final = clock
        self._file: Final = file
        position, places, *others = ("", "") if file is None else _read(file)
        self.position: str = position
        """As it was signed; empty if there is none."""
        doubtful = [line for line in others if line.startswith(_DOUBTFUL)]
        self.doubtful: str = doubtful[-1].removeprefix(_DOUBTFUL) if doubtful else ""
        """A signed position of a log that this server has followed and that went back, perhaps before that."""
        # By office and mark, as they came.
        self._places: Final[dict[tuple[int, str], LogPlace]] = {}
        for text in places.split():
            if (place := LogPlace.read(text)) is not None:
                self.heard(place)
        # By instance, office and mark, those that were heard of last behind.
        self._witnesses: Final[dict[tuple[str, int, str], tuple[LogPlace, str]]] = {}
        for token in others:
            if token not in doubtful:
                self._witnessed_again(token)
        self._written = self._lines()

    @property
    def witnesses(self) -> list[str]:
        """The last words of other instances on where their logs stood, as they signed them."""
        return [token for _, token in self._witnesses.values()]

    def words_of(self, instance: str) -> list[str]:
        """Those of one of them, those that were heard of last behind."""
        return [token for (one, _, _), (_, token) in self._witnesses.items() if one == instance]

    def shown_abroad(self, instance: str, place: LogPlace, token: str) -> None:
        """A homeserver of another instance has signed where its log stands; what is earlier is no news."""
        key = (instance, place.office, place.mark)
        known = self._witnesses.pop(key, None)
        self._witnesses[key] = (place, token) if known is None or place > known[0] else known
        words = Counter(one for one, _, _ in self._witnesses)
        if words[instance] > MAX_OFFICES_ABROAD:
            del self._witnesses[next(one for one in self._witnesses if one[0] == instance)]
        elif len(self._witnesses) > MAX_FOREIGN_LOGS:
            # No server's last word, as long as others have more than one.
            least = 1 if words.total() > len(words) else 0
            del self._witnesses[next(one for one in self._witnesses if words[one[0]] > least)]

    def _witnessed_again(self, token: str) -> None:
        try:
            instance, place = place_said_untrusted(token)
        except MessageError as error:
            _log.warning("%s holds something that is no word of a log: %s", self._file, error)
        else:
            self.shown_abroad(instance, place, token)

    @property
    def places(self) -> str:
        """Where the log was, by what homeservers say; the last of each office, with spaces between them."""
        return " ".join(map(str, self._places.values()))

    def heard(self, place: LogPlace) -> None:
        """A homeserver says that the log stands there; what is earlier is no news."""
        key = (place.office, place.mark)
        known = self._places.get(key)
        if known is None and len(self._places) >= MAX_HEARD_OFFICES:
            return
        if known is None or place.revision > known.revision:
            self._places[key] = place

    def confirmed(self, shown: str) -> None:
        """Home was shown these places, and its log has been there: only the last one is of use from now on."""
        read = [place for text in shown.split() if (place := LogPlace.read(text)) is not None]
        for place in sorted(read)[:-1]:
            if self._places.get((place.office, place.mark)) == place:
                del self._places[place.office, place.mark]

    def went_back(self, missing: str, *, position_known: bool = False) -> None:
        """Home's log has not been at these of the places that it was shown, or not where the signed word says.

        What else was heard may be of that log, and would be held against the one that the operator puts back. And so
        would the signed word if the log has been there (`position_known`).
        """
        if position_known:
            self.doubt()
        kept = set(missing.split())
        for key, place in list(self._places.items()):
            if str(place) not in kept:
                del self._places[key]

    def doubt(self) -> None:
        """The signed word is of another history than the one that counts, or may be."""
        if self.position:
            self.position, self.doubtful = "", self.position

    def _lines(self) -> str:
        doubtful = [f"{_DOUBTFUL}{self.doubtful}"] if self.doubtful else []
        return "".join(f"{line}\n" for line in (self.position, self.places, *doubtful, *self.witnesses))

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the file up to date, until cancelled, and then once more."""
        task_status.started()
        if self._file is None:
            await self._clock.sleep_forever()
        try:
            while True:
                await self._clock.sleep_s(WRITE_EVERY_S)
                if self._written != (lines := self._lines()):
                    await trio.to_thread.run_sync(self._write, lines)
        finally:
            self._write(self._lines())

    def _write(self, lines: str) -> None:
        if self._file is None or lines == self._written:
            return
        try:
            replace_file(self._file, lines.encode())
        except (OSError, DiskFailed) as error:
            _log.warning("%s is not written: %s", self._file, error)
        else:
            self._written = lines


def _read(file: Path) -> tuple[str, ...]:
    """The signed word, the places, and what other instances signed."""
    try:
        position, places, *witnesses = [*file.read_text(encoding="ascii").split("\n"), "", ""]
    except FileNotFoundError:
        return "", ""
    except (OSError, UnicodeDecodeError) as error:
        _log.warning("%s cannot be read, so a log that went back is not noticed by it: %s", file, error)
        return "", ""
    kept = [token for token in witnesses if token and len(token) <= MAX_TOKEN_CHARS]
    return position if len(position) <= MAX_POSITION_CHARS else "", places, *kept
