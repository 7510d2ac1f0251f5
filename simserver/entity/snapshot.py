"""A whole entity at rest: what moves when it is handed over, what copies and checkpoints are of, and its hash."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import cbor2

from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.model.ownership import UNTOLD, Ownership
from batonpass.authority.wire.cbor import loads_state_untrusted
from batonpass.simserver.entity.inputs import check_inbox
from batonpass.simserver.mail.entity_mail import check_mail
from batonpass.simserver.world.participants import KEY, NO_PARTS, read_parts
from batonpass.simserver.world.portability import is_text
from batonpass.simserver.world.step import NOTHING_CARRIED, Carried

__all__ = ["MAX_BROKEN_CHARS", "EntitySnapshot", "Frozen", "shortened", "state_hash"]

# Of the reason of a quarantine: it moves with the entity.
MAX_BROKEN_CHARS: Final = 512
_MAX_TICK: Final = 2**63


@dataclass(frozen=True, slots=True)
class EntitySnapshot:
    """A whole entity at rest: everything that moves with it."""

    kind: str
    tick: int
    world: Any
    inbox: dict[str, Any]
    ownership: Ownership = UNTOLD
    schema: int = 1
    carried: Carried = NOTHING_CARRIED
    broken: str = ""
    """Why it is quarantined wherever it goes, until it is released."""
    parts: Mapping[str, bytes] = field(default_factory=lambda: NO_PARTS)
    """What of it goes along beside the state; see `simserver.world.participants`."""
    released_epoch: int = 0
    """Under which epoch it was released last; servers that died of it before do not count (`crash_guard`)."""
    messages: dict[str, Any] | None = None
    """Its messages, sent and received (`simserver.mail.entity_mail`); None if there never were any."""

    @property
    def parts_bytes(self) -> int:
        """What of its encoding is not the state. It has a bound of its own."""
        return sum(len(name) + len(part) for name, part in self.parts.items())

    def encode(self) -> bytes:
        """Canonical CBOR (RFC 8949, 4.2): equal snapshots are equal bytes, so a hash identifies them."""
        fields = {"kind": self.kind, "tick": self.tick, "world": self.world, "inbox": self.inbox}
        fields |= {"ownership": self.ownership.to_data(), "schema": self.schema}
        fields |= {"broken": self.broken} if self.broken else {}
        fields |= {KEY: dict(self.parts)} if self.parts else {}
        fields |= {"released": self.released_epoch} if self.released_epoch else {}
        fields |= {"messages": self.messages} if self.messages is not None else {}
        return cbor2.dumps(fields | self.carried.to_data(), canonical=True)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` wrote.

        Raises:
            Exception: `ValueError`, `KeyError`, `TypeError` or what reading CBOR raises, when it is anything else.
        """
        fields = loads_state_untrusted(data)
        ownership = Ownership.from_data(fields["ownership"])
        schema = fields.get("schema", 1)
        if not isinstance(schema, int) or not 0 <= schema < 2**31:
            raise ValueError(f"{schema!r} is no schema version")
        broken = fields.get("broken", "")
        if not isinstance(broken, str) or len(broken) > MAX_BROKEN_CHARS:
            raise ValueError(f"why it is quarantined has at most {MAX_BROKEN_CHARS} characters")
        released_epoch = fields.get("released", 0)
        if not isinstance(released_epoch, int) or not 0 <= released_epoch <= MAX_EPOCH:
            raise ValueError(f"{released_epoch!r} is no epoch")
        carried, parts = Carried.from_data(fields), read_parts(fields)
        kind, tick, world, inbox = fields["kind"], fields["tick"], fields["world"], fields["inbox"]
        if type(kind) is not str or not is_text(kind):
            raise ValueError("a kind is a text")
        if type(tick) is not int or not 0 <= tick < _MAX_TICK:
            raise ValueError("a tick is a whole number from 0 to 2^63 - 1")
        check_inbox(inbox)
        messages = fields.get("messages")
        if messages is not None:
            check_mail(messages)
        return cls(kind, tick, world, inbox, ownership, schema, carried, broken, parts, released_epoch, messages)


def state_hash(encoded: bytes) -> str:
    """Hex SHA-256 of an encoded snapshot."""
    return hashlib.sha256(encoded).hexdigest()


@dataclass(frozen=True, slots=True)
class Frozen:
    """An entity at rest, ready to be handed over."""

    fence: Fence
    kind: str
    tick: int
    state: bytes
    state_hash: str
    frozen_ns: int
    schema: int = 1


def shortened(why: str) -> str:
    """Why an entity is quarantined, as it can be encoded."""
    # An error of a world may say anything, at any length; and not all of it can be encoded.
    return why[:MAX_BROKEN_CHARS].encode(errors="replace").decode()
