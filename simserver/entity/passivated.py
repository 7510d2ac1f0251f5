"""What is left in memory of a passivated entity: the bytes of it, and how far its sources have come.

Most of what an entity takes in memory is not its state but the objects that it is made of. A state of 100 kB of CBOR
takes more than a megabyte, one of 300 bytes six kilobytes with its inbox and its actor. An entity that has slept for
long enough needs none of that. It is kept as it is encoded, but for the number of its tick, which continues. So copies,
checkpoints and hand-overs of it need nothing but these bytes. In memory and not on a disk. Any of them may be due at
any moment, and none is to wait for a disk, nor to find it full.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import cbor2

from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot

__all__ = ["PassivatedState"]

# To compress and to read again what is larger would keep the server busy for a part of a tick that is felt.
MAX_COMPRESSED_BYTES: Final = 256 * 1024
# Most of what there is to gain, in a third of the time of the best.
_LEVEL: Final = 1


@dataclass(slots=True)
class PassivatedState:
    """One entity. `heard` has each source with what was accepted of it and what was applied, in the inbox's order.

    `group`, `immovable` and `position` (empty: it is nowhere) are what its world has said since of each, if it was
    asked.
    """

    heard: tuple[tuple[str, int, int], ...]
    _front: bytes
    _rest: bytes
    _is_compressed: bool
    group: str | None = None
    immovable: bool | None = None
    position: tuple[float, ...] | None = None

    @classmethod
    def of(cls, around_tick: tuple[bytes, bytes], inbox: EntityInbox) -> Self:
        """`around_tick` is the encoded entity up to the number of its tick, and from there on."""
        front, rest = around_tick
        compressed = zlib.compress(rest, _LEVEL) if len(rest) <= MAX_COMPRESSED_BYTES else rest
        is_smaller = len(compressed) < len(rest)
        return cls(inbox.heard(), front, compressed if is_smaller else rest, is_smaller)

    def encoded(self, tick: int) -> bytes:
        """The entity at this tick, byte for byte as if it had never been passivated."""
        rest = zlib.decompress(self._rest) if self._is_compressed else self._rest
        return b"".join((self._front, cbor2.dumps(tick), rest))

    def applied(self, source: str) -> int | None:
        """How many inputs of a source were applied; None if it is not known."""
        return next((applied for name, _, applied in self.heard if name == source), None)

    def inbox(self, snapshot: EntitySnapshot) -> EntityInbox:
        """Its inbox, with those in front that are idle for the longest time: that is in no snapshot."""
        inbox = EntityInbox.from_data(snapshot.inbox)
        cursors: Mapping[str, object] = inbox.cursors
        if list(cursors) != [name for name, *_ in self.heard]:
            inbox.cursors = {name: inbox.cursors[name] for name, *_ in self.heard}
        return inbox
