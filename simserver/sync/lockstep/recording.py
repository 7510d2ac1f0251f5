"""A stream in a file: JSON lines, of which the first says what the file is.

    {"Recording": 1, "Stream": name, "Incarnation": hex}
    {"T": n, "Events": [[T, Type, Origin, Body], …]}    the events since the line before, up to tick n
    {"Tick": n, "Hash": hex}                            the hash that was computed, at some ticks

A program writes one beside a game (`Recorder`). It reads one again by `read_recording_untrusted`, which takes no more
than a bound of lines and bytes from files of others.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, BinaryIO, Final

from batonpass.simserver.sync.lockstep.driver import SimEvent, TickRecord

__all__ = ["Recorder", "RecordingRefused", "StreamRecording", "read_recording_untrusted"]

VERSION: Final = 1
MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_RECORDING_BYTES: Final = 256 * 1024 * 1024
MAX_TICKS: Final = 100_000_000
"""Two months."""


class RecordingRefused(ValueError):
    """A file is no recording, or one of a later version; the sentence names the line."""


@dataclass(frozen=True)
class StreamRecording:
    """A stream as far as it was recorded."""

    stream: str
    incarnation: str
    ticks: int
    """The last known tick."""
    events: tuple[SimEvent, ...]
    hashes: dict[int, str] = field(default_factory=dict)

    def by_tick(self) -> dict[int, tuple[SimEvent, ...]]:
        """Return the events of each tick that has any."""
        return {tick: tuple(events) for tick, events in groupby(self.events, lambda event: event.tick)}

    def steps(self) -> Iterator[tuple[SimEvent, ...]]:
        """Give the events of each tick, from the first one on."""
        by_tick = self.by_tick()
        return (by_tick.get(tick, ()) for tick in range(1, self.ticks + 1))


class Recorder:
    """Writes a recording.

    Args:
        file: open for writing; closing it is the caller's.
        stream: its name.
        incarnation: which life of it. When that changes, a new recording begins.
    """

    def __init__(self, file: BinaryIO, stream: str, incarnation: str) -> None:
        self._file: Final = file
        self._known = 0
        self._write({"Recording": VERSION, "Stream": stream, "Incarnation": incarnation})

    def known(self, tick: int, events: Iterable[SimEvent]) -> None:
        """Write that a tick is known, with the events since the last one; nothing, if it was known already."""
        rows = [list(event) for event in events if event.tick > self._known]
        if tick > self._known:
            self._write({"T": tick, "Events": rows})
            self._known = tick

    def computed(self, tick: int, state_hash: str) -> None:
        """Write the hash of a tick."""
        self._write({"Tick": tick, "Hash": state_hash})

    def add(self, record: TickRecord) -> None:
        """Write a tick as a driver keeps it, with its events and its hash.

        Raises:
            ValueError: it is not the next tick. The game began anew or jumped: begin another recording.
        """
        if record.tick != self._known + 1:
            raise ValueError(f"tick {record.tick} does not follow tick {self._known}: begin another recording")
        self.known(record.tick, record.events)
        self.computed(record.tick, record.hash)

    def _write(self, row: Any) -> None:
        self._file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")


def read_recording_untrusted(file: BinaryIO) -> StreamRecording:
    """Return the recording in a file, which may come from anywhere. A last line that was cut off is left out.

    Raises:
        RecordingRefused: the file is none, or too long.
    """
    lines, number = _lines(file), 1
    try:
        header = next(lines, None)
        if not isinstance(header, dict) or "Recording" not in header:
            raise RecordingRefused('line 1 is no header of a recording: it begins with {"Recording": 1')
        if header["Recording"] != VERSION:
            raise RecordingRefused(f"it is of version {header['Recording']!r}, and this program reads {VERSION}")
        known, events, hashes = 0, list[SimEvent](), dict[int, str]()
        for number, row in enumerate(lines, 2):
            if "Tick" in row:
                hashes[int(row["Tick"])] = str(row["Hash"])
                continue
            found = [
                SimEvent(int(tick), str(type), str(origin), str(body)) for tick, type, origin, body in row["Events"]
            ]
            tick = int(row["T"])
            before = [known + 1, *(event.tick for event in found), tick]
            if before != sorted(before) or tick > MAX_TICKS:
                raise RecordingRefused(
                    f"line {number}: its ticks are not in order after {known}, or beyond {MAX_TICKS}"
                )
            known = tick
            events += found
        return StreamRecording(str(header["Stream"]), str(header["Incarnation"]), known, tuple(events), hashes)
    except RecordingRefused:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise RecordingRefused(f"line {number} is no part of a recording: {error!r}") from error


def _lines(file: BinaryIO) -> Iterator[Any]:
    size = number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        size, number = size + len(line), number + 1
        if len(line) > MAX_LINE_BYTES or size > MAX_RECORDING_BYTES:
            raise RecordingRefused(f"a line has at most {MAX_LINE_BYTES} bytes, and a recording {MAX_RECORDING_BYTES}")
        if not line.endswith(b"\n"):
            return
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordingRefused(f"line {number} is no JSON: {error}") from error
        yield row
