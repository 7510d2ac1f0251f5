"""Encoding one entity again and again: what has not changed since the last time is not encoded another time.

It is encoded when it comes, when it is copied, when it is written down and when it leaves, and between two ticks it is
the same. With a tick the world's state changes, and seldom anything else. What stands beside that is kept encoded, and
put around it in the order of canonical CBOR.
"""

from functools import lru_cache
from typing import Any, Final, Protocol

import cbor2

from batonpass.authority.model.ownership import Ownership
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.quarantine import Quarantine
from batonpass.simserver.mail.entity_mail import EntityMail
from batonpass.simserver.world.portability import Glance, NotPortable, a_state, glance, portable
from batonpass.simserver.world.step import Carried

__all__ = ["MAX_GLANCED", "MAX_TRIED_BYTES", "LifeEncoder"]

# The whole of a larger one is not kept beside what it is of.
_MAX_KEPT_BYTES: Final = 4096
# With every tick at most this many members of a state are looked at, some 400 us. A state with more is looked at when
# it is encoded. Nor is what has to be encoded for that encoded with every tick if it is longer.
MAX_GLANCED: Final = 4096
MAX_TRIED_BYTES: Final = 4096
_TICK: Final = cbor2.dumps("tick")
_WORLD: Final = cbor2.dumps("world")


# A world has few kinds.
@lru_cache(maxsize=256)
def _front(kind: str, fields: int) -> bytes:
    """The head of the whole map, which has `fields` fields, and what it has up to the number of the tick."""
    return bytes([0xA0 | fields]) + cbor2.dumps({"kind": kind})[1:] + _TICK


class _Encodable(Protocol):
    """What of an entity is encoded, as of `Snapshot`."""

    kind: str
    world: Any
    schema: int
    inbox: EntityInbox
    carried: Carried
    quarantine: Quarantine
    mail: EntityMail | None

    @property
    def ownership(self) -> Ownership:
        """Who owns it."""

    @property
    def tick(self) -> int:
        """How many ticks it has had."""


class LifeEncoder:
    """Encodes one life: the same as `Snapshot.encode` of it, as it stands.

    The carried part and the world are known by their identity, since they are replaced and never changed. A world that
    changes its state in place does so with a tick. The inbox counts its changes.

    Raises `NotPortable` of a world that cannot be written, or could not be read again.
    """

    __slots__ = ("_beside", "_inbox", "_whole", "world_bytes")

    def __init__(self) -> None:
        self.world_bytes = 0
        """How long its world was when it was encoded last."""
        self._beside: tuple[Any, ...] = (None,)
        self._inbox: tuple[int, bytes] = (-1, b"")
        self._whole: tuple[Any, ...] = (None,)

    def encode(self, entity: _Encodable) -> bytes:
        """The life between two ticks."""
        tick, world = entity.tick, entity.world
        (front, back), inbox = self._around(entity), self._inbox_of(entity.inbox)
        whole = self._whole
        # The parts are the same objects while they are of the same.
        if whole[0] == tick and whole[1] is world and whole[2] is inbox and whole[3] is back:
            state: bytes = whole[4]
            return state
        state = b"".join((front, cbor2.dumps(tick), inbox, self.of_world(world), back))
        self._whole = (tick, world, inbox, back, state) if len(state) <= _MAX_KEPT_BYTES else (None,)
        return state

    def around_tick(self, entity: _Encodable) -> tuple[bytes, bytes]:
        """The same up to the number of the tick, and from there on."""
        front, back = self._around(entity)
        return front, b"".join((self._inbox_of(entity.inbox), self.of_world(entity.world), back))

    def of_world(self, world: Any) -> bytes:
        """The world's state alone."""
        encoded = portable(world)
        self.world_bytes = len(encoded)
        return encoded

    def require_portable(self, world: Any) -> None:
        """See that a state may be committed: it can leave with its entity, unless it is too large to look at it all.

        A tick takes longer by it: by 1.7 us with a ball, and by 6 us with 240 bytes of small maps. With 1 MiB that is
        large it is 2 us.

        Raises:
            NotPortable: it is no state, or the entity could not be copied, handed over, or taken over after a failure.
        """
        a_state("the step", world)
        try:
            if glance(world, MAX_GLANCED) is Glance.OTHER and self.world_bytes <= MAX_TRIED_BYTES:
                self.of_world(world)
        except NotPortable as error:
            raise NotPortable(f"the world gave a state that cannot travel: {error}") from error

    def _around(self, entity: _Encodable) -> tuple[bytes, bytes]:
        """Up to the number of the tick, and after the world."""
        beside, broken, released = self._beside, entity.quarantine.wherever, entity.quarantine.released_epoch
        mail = entity.mail
        mail_changes = 0 if mail is None else mail.changes
        if (
            beside[0] is not entity.carried
            or beside[1] != entity.ownership
            or beside[2] != entity.schema
            or beside[3] != broken
            or beside[4] != released
            or beside[5] != mail_changes
        ):
            after = {"ownership": entity.ownership.to_data(), "schema": entity.schema} | entity.carried.to_data()
            after |= {"broken": broken} if broken else {}
            after |= {"released": released} if released else {}
            after |= {"messages": mail.to_data()} if mail is not None else {}
            front = _front(entity.kind, len(("kind", "tick", "inbox", "world")) + len(after))
            # Without the head of a map of its own, which is one byte for fewer than 24 fields.
            back = cbor2.dumps(after, canonical=True)[1:]
            known = (entity.carried, entity.ownership, entity.schema, broken, released, mail_changes)
            beside = self._beside = (*known, (front, back))
        around: tuple[bytes, bytes] = beside[6]
        return around

    def _inbox_of(self, inbox: EntityInbox) -> bytes:
        """From after the tick up to the world."""
        changes = inbox.changes
        if self._inbox[0] != changes:
            data = inbox.to_data()
            # As it stands it is in order, but for the names of several sources.
            encoded = cbor2.dumps({"inbox": data}, canonical=len(data["cursors"]) > 1)
            self._inbox = (changes, encoded[1:] + _WORLD)
        return self._inbox[1]
