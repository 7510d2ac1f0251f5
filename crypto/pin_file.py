"""The pins of a server on its disk: what it has once believed of others, which outlives it.

JSON lines, appended to: `{"name", "role", "version", "head", "keys", "statements"}` for a pin, `{"name", "forgotten":
true}` for one that was taken back; the last line about a name counts. A line that a crash cut off is dropped; damage
anywhere else is an error, because going on without a pin means believing whoever comes first. The file is written anew
when most of it is history. Pins seen for the first time are left to the kernel to write: a power cut costs those of its
last seconds, which are then pinned anew; a change of keys is synced before it counts.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crypto import key_files
from crypto.continuity import Pin
from crypto.errors import CryptoError, KeyFileError
from crypto.public_keys import PublicIdentity

__all__ = ["PinFile", "PinRecord"]

_SPARE_LINES: Final = 1000
"""History that is not worth a rewrite."""


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
        self._lines = 0

    def load(self) -> dict[str, PinRecord]:
        """All pins by name, in the order in which they were written; none when there is no file yet."""
        if not self.path.exists():
            return {}
        key_files.require_private(self.path, "chmod 600")
        text = self.path.read_bytes()
        whole, _, cut_off = text.rpartition(b"\n")
        records: dict[str, PinRecord] = {}
        lines = whole.split(b"\n") if whole else []
        for number, line in enumerate(lines, 1):
            self._read(number, line, records)
        self._lines = len(lines)
        if cut_off:
            os.truncate(self.path, len(text) - len(cut_off))
        return records

    def write(self, record: PinRecord, *, all_records: Iterable[PinRecord], count: int, durable: bool) -> None:
        """Add a pin, or replace an earlier one. `all_records` are all there are now, `count` of them."""
        if self._lines > 2 * count + _SPARE_LINES:
            text = b"".join(_line(one) for one in all_records)
            self._lines = text.count(b"\n")
            key_files.replace(self.path, text)
            return
        self._append(_line(record), durable=durable)

    def forget(self, name: str) -> None:
        """The pin of this name is taken back; whatever is shown for it next is believed."""
        self._append(_dump({"name": name, "forgotten": True}), durable=True)

    def _append(self, line: bytes, *, durable: bool) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._lines += 1

    def _read(self, number: int, line: bytes, records: dict[str, PinRecord]) -> None:
        try:
            data = json.loads(line)
            name = str(data["name"])
            records.pop(name, None)
            if data.get("forgotten") is not True:
                keys = PublicIdentity.from_jwks_untrusted(data["keys"])
                statements = tuple(str(token) for token in data.get("statements", ()))
                pin = Pin(int(data["version"]), str(data["head"]), keys, statements)
                records[name] = PinRecord(name, str(data["role"]), pin)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CryptoError) as error:
            raise KeyFileError(
                f"{self.path} is damaged in line {number}: restore it from a backup; or remove it, and this server "
                "believes anew whatever keys it is shown first"
            ) from error


def _line(record: PinRecord) -> bytes:
    pin = record.pin
    about = {"name": record.name, "role": record.role, "version": pin.version, "head": pin.head}
    return _dump(about | {"keys": pin.keys.to_jwks(), "statements": list(pin.statements)})


def _dump(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode("ascii") + b"\n"
