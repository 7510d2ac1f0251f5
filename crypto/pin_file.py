"""The pins of a server on its disk: what it has once believed of others, which outlives it.

JSON lines, appended to: `{"name", "role", "version", "head", "keys", "statements"}` for a pin,
`{"name", "forgotten": true}` for one that was taken back. The last line about a name counts. A last line that a crash
cut off is dropped. Damage anywhere else is an error, because going on without a pin means believing the first that
comes. The file is written anew when most of it is history. Pins seen for the first time are left to the kernel to
write. A power cut costs those of its last seconds, which are then pinned anew; a change of keys is synced before it
counts.

When the disk is full, what was written of a line is cut off again, so that the file stays whole. The line is kept here
and written before the next one.
"""

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batonpass.crypto import key_files
from batonpass.crypto.continuity import Pin
from batonpass.crypto.errors import CryptoError, KeyFileError
from batonpass.crypto.public_keys import PublicIdentity

__all__ = ["PinFile", "PinRecord"]

_log = logging.getLogger("batonpass.crypto.pins")

_SPARE_LINES: Final = 1000
"""History that is not worth a rewrite."""

_MAX_BYTES: Final = 2**30
"""Ten times what 100,000 pins take."""

_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True)
class PinRecord:
    """What is pinned of one name: its keys, and what it is (a role; the caller's word)."""

    name: str
    role: str
    pin: Pin


class PinFile:
    """The pins in one file of mode 0600. What reads or writes it raises KeyFileError when it cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._is_named = False
        self._lines = 0
        self._waiting: dict[str, bytes] = {}
        self._whole_bytes: int | None = None

    @property
    def waiting(self) -> int:
        """Of how many names the last word is not on the disk, because it could not be written."""
        return len(self._waiting)

    def load(self) -> dict[str, PinRecord]:
        """All pins by name, in the order in which they were written; none when there is no file yet."""
        key_files.remove_drafts(self.path.parent, self.path.name)
        try:
            text = key_files.read_private(self.path, max_bytes=_MAX_BYTES)
        except FileNotFoundError:
            return {}
        records: dict[str, PinRecord] = {}
        lines = text.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("the line has no end")
                self._read(line, records)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CryptoError) as error:
                if number < len(lines):
                    raise KeyFileError(
                        f"{self.path} is damaged in line {number}: restore it from a backup; or remove it, and this "
                        "server believes anew whatever keys it is shown first"
                    ) from error
                self._drop_last(len(text) - len(line))
        self._lines = len(lines)
        return records

    def write(self, record: PinRecord, *, all_records: Iterable[PinRecord], count: int, durable: bool) -> None:
        """Add a pin, or replace an earlier one. `all_records` are all there are now, `count` of them.

        After a KeyFileError the file is as it was, and the pin is written with the next one.
        """
        if self._lines <= 2 * count + _SPARE_LINES:
            self._append(record.name, _line(record), durable=durable)
            return
        text = b"".join(_line(one) for one in all_records)
        try:
            key_files.replace(self.path, text)
        except KeyFileError:
            # There may be no room for two files, and room for a line.
            self._append(record.name, _line(record), durable=durable)
            return
        self._lines = text.count(b"\n")
        self._waiting.clear()
        self._whole_bytes = None

    def forget(self, name: str) -> None:
        """The pin of this name is taken back; whatever is shown for it next is believed.

        After a KeyFileError it is not: the file is as it was.
        """
        before = self._waiting.get(name)
        try:
            self._append(name, _dump({"name": name, "forgotten": True}), durable=True)
        except KeyFileError:
            del self._waiting[name]
            if before is not None:
                self._waiting[name] = before
            raise

    def _append(self, name: str, line: bytes, *, durable: bool) -> None:
        """Write what waits, and this line; all of it or nothing."""
        self._waiting.pop(name, None)
        self._waiting[name] = line
        try:
            descriptor = os.open(self.path, _APPEND, 0o600)
            try:
                self._append_whole(descriptor, b"".join(self._waiting.values()))
                if durable:
                    os.fsync(descriptor)
                    self._make_name_durable()
            finally:
                os.close(descriptor)
        except OSError as error:
            raise KeyFileError(f"{self.path} cannot be written: {error.strerror}") from error
        self._lines += len(self._waiting)
        self._waiting.clear()

    def _make_name_durable(self) -> None:
        """Once in a process: the file may have been made by this one, or by one before it whose end was not awaited."""
        if not self._is_named:
            key_files.sync(self.path.parent)
            self._is_named = True

    def _append_whole(self, descriptor: int, data: bytes) -> None:
        if self._whole_bytes is not None:
            os.ftruncate(descriptor, self._whole_bytes)
        self._whole_bytes = os.fstat(descriptor).st_size
        left = memoryview(data)
        try:
            while left:
                # A disk that is nearly full takes a part of it, and refuses the rest only when asked again.
                left = left[os.write(descriptor, left) :]
        except OSError:
            os.ftruncate(descriptor, self._whole_bytes)
            self._whole_bytes = None
            raise
        self._whole_bytes = None

    def _drop_last(self, whole_bytes: int) -> None:
        _log.warning("%s ends in a line that was not written to its end: dropped", self.path)
        try:
            os.truncate(self.path, whole_bytes)
        except OSError as error:
            raise KeyFileError(f"{self.path} cannot be written: {error.strerror}") from error

    def _read(self, line: bytes, records: dict[str, PinRecord]) -> None:
        data = json.loads(line)
        name = str(data["name"])
        if data.get("forgotten") is True:
            records.pop(name, None)
            return
        keys = PublicIdentity.from_jwks_untrusted(data["keys"])
        statements = tuple(str(token) for token in data.get("statements", ()))
        pin = Pin(int(data["version"]), str(data["head"]), keys, statements)
        role = str(data["role"])
        records.pop(name, None)
        records[name] = PinRecord(name, role, pin)


def _line(record: PinRecord) -> bytes:
    pin = record.pin
    about = {"name": record.name, "role": record.role, "version": pin.version, "head": pin.head}
    return _dump(about | {"keys": pin.keys.to_jwks(), "statements": list(pin.statements)})


def _dump(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode("ascii") + b"\n"
