"""Keys as a terminal sends them, and lines of a script that stand for them. No I/O."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["ARENA_KEYS", "BadScript", "Give", "KeyDecoder", "Pause", "script_line"]

ARENA_KEYS: Final[Mapping[str, bytes]] = {
    "up": b"\x00\x81",
    "down": b"\x00\x7f",
    "left": b"\x81\x00",
    "right": b"\x7f\x00",
    "space": b"\x00\x00",
}
"""The inputs of a robot of the arena: two signed bytes, the direction."""

MAX_INPUT_BYTES: Final = 4096
MAX_PAUSE_S: Final = 3600.0
_ESCAPE: Final = 0x1B
_SPACE: Final = 0x20
_ARROWS: Final = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}
_DELETE: Final = 0x7F
_NAMED: Final = {0x0A: "enter", 0x0D: "enter", 0x09: "tab", _DELETE: "backspace", _SPACE: "space"}
# ECMA-48: what introduces a control sequence, and how it ends.
_SEQUENCE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*([@-~])|O([@-~]))")
_UNFINISHED: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")


class BadScript(ValueError):
    """A line of a script says nothing that can be done; the sentence names it."""


class KeyDecoder:
    """What was typed, by the bytes that a terminal sends: letters as themselves, others by name."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """The keys that these bytes complete. A sequence that is cut off is kept for the next time."""
        data, self._rest = self._rest + data, b""
        at = 0
        while at < len(data):
            if data[at] != _ESCAPE:
                yield from self._plain(data[at])
                at += 1
            elif found := _SEQUENCE.match(data, at):
                final = found[1] or found[2]
                if final in _ARROWS:
                    yield _ARROWS[final]
                at = found.end()
            elif _UNFINISHED.match(data, at):
                self._rest = data[at:]
                return
            else:
                at += 1

    def _plain(self, byte: int) -> Iterator[str]:
        if byte in _NAMED:
            yield _NAMED[byte]
        elif _SPACE < byte < _DELETE:
            yield chr(byte)


@dataclass(frozen=True, slots=True)
class Give:
    """An input is given."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is given for so long."""

    seconds: float


def script_line(line: str, keys: Mapping[str, bytes]) -> Give | Pause | None:
    """What a line of a script says: a key's name, bytes in hexadecimal digits, or `wait SECONDS`; None: nothing.

    Raises:
        BadScript: none of these.
    """
    text = line.partition("#")[0].strip()
    if not text:
        return None
    if text in keys:
        return Give(keys[text])
    word, _, rest = text.partition(" ")
    if word == "wait":
        try:
            seconds = float(rest)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= MAX_PAUSE_S:
            raise BadScript(f"{text!r:.60} waits for no time: give seconds, at most {MAX_PAUSE_S:.0f}")
        return Pause(seconds)
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise BadScript(f"{text!r:.60} is no key ({', '.join(keys)}), no hexadecimal digits, and no wait") from None
    if len(data) > MAX_INPUT_BYTES:
        raise BadScript(f"an input has at most {MAX_INPUT_BYTES} bytes, not {len(data)}")
    return Give(data)
