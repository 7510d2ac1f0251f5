"""The mark beside a journal: what its files are and how far each has got at least, so that a loss is noticed.

A journal that is gone looks like that of a new member, and one whose end is gone like one that a crash tore. The mark
tells them apart. It is a small file of its own, replaced as a whole and durably, and names the parts of the journal by
their nonces (`tree.disk.batches`). Of each it says how many batches were durable and how many bytes were reserved when
the mark was written. It is written when a part is begun, and when space is reserved (each 4 MiB). The space is durable
before the mark, and no batch is written beyond it. So a part that is shorter than its mark says has lost its end, and
may have lost what was acknowledged. What a crash tears is within the reserve and is dropped as ever.

A journal without a mark is one of an earlier release, or its mark was lost; it gets one. What a journal says itself,
which is the reserve that it was made with, is asked of it all the same.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batonpass.tree.disk.batches import REMEDY, JournalDamaged, JournalForeign, lost_end
from batonpass.tree.disk.disk import Disk, replace_file

__all__ = ["JournalMark", "Part"]

MARK_VERSION: Final = 1
_MAGIC: Final = f"batonpass journal mark {MARK_VERSION}"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the journal, by its nonce: it has at least `batches` whole ones, and `size_bytes`."""

    nonce: bytes
    batches: int
    size_bytes: int


class JournalMark:
    """The mark of the journal at `path`, as it was read and then as it was written last.

    Every method raises `DiskFailed`.
    """

    def __init__(self, disk: Disk, path: Path, owner: str) -> None:
        """Read it, if it is there; raises `JournalDamaged`, `JournalForeign`."""
        self._disk: Final = disk
        self._journal_path: Final = path
        self._path: Final = path.with_name(path.name + ".mark")
        self._owner: Final = owner
        self.exists = disk.exists(self._path)
        self._parts: dict[bytes, Part] = self._read() if self.exists else {}

    def check(self, found: Part) -> None:
        """Raises `JournalDamaged` unless this part, as it was found on the disk, has all that was noted of it."""
        if not self.exists:
            return
        noted = self._parts.get(found.nonce)
        if noted is None:
            wrong = "is not the journal that this member wrote last but an older one, or another"
        elif found.size_bytes < noted.size_bytes:
            wrong = f"has {found.size_bytes} bytes, but {noted.size_bytes} were reserved: its end is lost"
        elif found.batches < noted.batches:
            wrong = f"ends after batch {found.batches}, but batch {noted.batches} was durable: its end is lost"
        else:
            return
        raise lost_end(self._journal_path, wrong)

    def note(self, *parts: Part) -> None:
        """From now on the journal consists of these parts, or of some of them."""
        self._parts = {part.nonce: part for part in parts}
        rows = [f"{part.nonce.hex()} {part.batches} {part.size_bytes}\n" for part in parts]
        text = "".join([f"{_MAGIC}\n{self._owner}\n", *rows]).encode()
        replace_file(self._path, text + f"{zlib.crc32(text):08x}\n".encode(), disk=self._disk)
        self.exists = True

    def note_part(self, part: Part) -> None:
        """As `note`, of this part, while the others stay as they are."""
        self.note(*{**self._parts, part.nonce: part}.values())

    def knows(self, nonce: bytes) -> bool:
        """Whether this is a part of the journal, as far as is known."""
        return nonce in self._parts

    def _read(self) -> dict[bytes, Part]:
        file = self._disk.open(self._path)
        try:
            contents = file.read(0, file.size())
        finally:
            file.close()
        text, checked = contents[:-9], contents[-9:]
        try:
            if f"{zlib.crc32(text):08x}\n".encode() != checked:
                raise ValueError("its check sum does not fit")
            magic, owner, *rows = text.decode().splitlines()
            if (magic, owner) != (_MAGIC, self._owner):
                raise JournalForeign(f"{self._path} is of {owner!r}, not of {self._owner!r}; check the directory")
            parts = [row.split(" ") for row in rows]
            return {bytes.fromhex(one): Part(bytes.fromhex(one), int(two), int(three)) for one, two, three in parts}
        except ValueError as error:
            raise JournalDamaged(
                f"{self._path} cannot be read ({error}), so the journal beside it may not be whole. Check "
                f"the disk; then {REMEDY.format(self._path.parent)}"
            ) from error
