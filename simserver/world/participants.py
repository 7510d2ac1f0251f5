"""Participants: what a world keeps of an entity outside of its state, and what of that moves along with a hand-over.

A world keeps caches, handles of a physics engine, the activations of a network in this process, beside the states.
It may have `participants`, a mapping of names to `Participant`s, each of which takes care of one such part. Orleans
calls this grain migration, and gave it the names.

`dehydrate` is called at the freeze, and only then. What it gives is in the frozen state, so the certificate's hash
covers it, and it is staged, passed and activated with it. The server that resumes from that state has its participants
`rehydrate` it before the first tick. Copies for backup replicas and checkpoints have the state alone. A server that
resumes from one of these begins with empty parts, and `rehydrate` is not called. Nor is it for a part that was left
behind.

A part never stops a hand-over and never breaks an entity. One that raises, is no CBOR data or is too large is left
behind, and counted: `part_failed`, `part_too_large`. One that is not known where it comes is counted there
(`part_unknown`), and is gone with the next tick. A quarantined entity takes no parts along: what the failed step
made of them is unknown.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import cbor2

from batonpass.actors.base.errors import is_stopping, traceback_of
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.wire.cbor import loads_state_untrusted
from batonpass.simserver.world.portability import portable

__all__ = [
    "MAX_PARTS",
    "MAX_PARTS_BYTES",
    "MAX_PART_NAME",
    "NO_PARTS",
    "EntityParts",
    "Participant",
    "dehydrated",
    "read_parts",
    "rehydrate",
    "release",
    "with_parts",
]

_log = logging.getLogger("batonpass.simserver.world.participants")

# Of one entity, which is frozen while they are on their way, beside its state.
MAX_PARTS: Final = 16
MAX_PART_NAME: Final = 64
MAX_PARTS_BYTES: Final = 4 * 1024 * 1024
# Around all of them, and around each: the heads of maps and texts.
_HEAD_BYTES: Final = 32
_ENTRY_BYTES: Final = 16
KEY: Final = "participants"
"""In a snapshot. The longest of its keys, so it stands last: what was sent ahead of the state stays where it is."""

# A plain one, that searches through all states can copy; it is never written to.
NO_PARTS: Final[Mapping[str, bytes]] = {}


class Participant(Protocol):
    """Takes care of one part of the entities of a world: of what is kept of them beside their states."""

    def dehydrate(self, entity: str, state: Any) -> Any:
        """What is kept of the entity, as plain CBOR data; None if there is nothing to carry.

        Nothing may be given up by it: if the hand-over is refused the entity is resumed here, without a call of
        `rehydrate`. It is called once at most between two ticks.
        """

    def rehydrate(self, entity: str, state: Any, data: Any) -> None:
        """The entity has come, in this state, with what the last server's participant of this name gave."""

    def release(self, entity: str) -> None:
        """The entity has left this server, or has ended: free what is kept of it. Perhaps there is nothing."""


@dataclass(frozen=True, slots=True)
class EntityParts:
    """The parts of one entity at one tick: those in its encoding, and those with which it would be frozen, if known."""

    tick: int
    shown: Mapping[str, bytes] = field(default_factory=lambda: NO_PARTS)
    ready: Mapping[str, bytes] | None = None


def dehydrated(
    world: Any, entity: str, look: Callable[[], Any], state_bytes: int, count: Callable[[str], None]
) -> Mapping[str, bytes]:
    """The parts that go along, encoded, by name. `look` gives the state, of `state_bytes` without them."""
    participants = _participants(world, entity, count)
    if not participants:
        return NO_PARTS
    parts: dict[str, bytes] = {}
    state = look()
    room_bytes = min(MAX_PARTS_BYTES, MAX_STATE_BYTES - state_bytes - _HEAD_BYTES)
    for name, participant in participants:
        try:
            data = participant.dehydrate(entity, state)
            encoded = b"" if data is None else portable(data)
            size_bytes = len(encoded) + len(name.encode()) + _ENTRY_BYTES
        except BaseException as error:
            if is_stopping(error):
                raise
            # Also one under what is no text, or none that can be encoded.
            _left_behind(entity, name, error, count)
            continue
        if not encoded:
            continue
        if len(parts) >= MAX_PARTS or not 1 <= len(name) <= MAX_PART_NAME or size_bytes > room_bytes:
            count("part_too_large")
            continue
        room_bytes -= size_bytes
        parts[name] = encoded
    return parts


def rehydrate(world: Any, entity: str, state: Any, parts: Mapping[str, bytes], count: Callable[[str], None]) -> None:
    """Give every part to the participant of its name."""
    participants = dict(_participants(world, entity, count))
    for name, encoded in parts.items():
        participant = participants.get(name)
        if participant is None:
            count("part_unknown")
            continue
        try:
            participant.rehydrate(entity, state, loads_state_untrusted(encoded))
        except BaseException as error:
            if is_stopping(error):
                raise
            _left_behind(entity, name, error, count)
        else:
            count("part_rehydrated")


def release(world: Any, entity: str, count: Callable[[str], None]) -> None:
    """Have every participant free what it keeps of the entity."""
    for name, participant in _participants(world, entity, count):
        try:
            participant.release(entity)
        except BaseException as error:
            if is_stopping(error):
                raise
            _left_behind(entity, name, error, count)


def _participants(world: Any, entity: str, count: Callable[[str], None]) -> Sequence[tuple[str, Participant]]:
    """By name; none if the world fails to say."""
    try:
        participants: Mapping[str, Participant] | None = getattr(world, "participants", None)
        return list(participants.items()) if participants else ()
    except BaseException as error:
        if is_stopping(error):
            raise
        count("part_failed")
        text = "the world failed to say which participants take care of the parts of %s\n%s"
        _log.error(text, entity, traceback_of(error))
        return ()


def _left_behind(entity: str, name: object, error: BaseException, count: Callable[[str], None]) -> None:
    count("part_failed")
    text = "the participant %r failed on %s; the entity goes on without that part\n%s"
    _log.error(text, name, entity, traceback_of(error))


def with_parts(encoded: bytes, parts: Mapping[str, bytes]) -> bytes:
    """The canonical encoding of a snapshot that has these parts, from that of the same without."""
    if not parts:
        return encoded
    # One field more, of fewer than 24, and the last one in canonical order.
    return b"".join((bytes([encoded[0] + 1]), encoded[1:], cbor2.dumps({KEY: dict(parts)}, canonical=True)[1:]))


def read_parts(fields: Mapping[str, Any]) -> Mapping[str, bytes]:
    """The parts of a snapshot that was decoded. Raises `ValueError` when they are none, or too many."""
    parts = fields.get(KEY)
    if parts is None:
        return NO_PARTS
    if not isinstance(parts, dict) or not 1 <= len(parts) <= MAX_PARTS or not all(map(_is_part, parts.items())):
        raise ValueError(f"parts are 1 to {MAX_PARTS} bytestrings, with names of at most {MAX_PART_NAME} characters")
    if sum(map(len, parts.values())) > MAX_PARTS_BYTES:
        raise ValueError(f"the parts of an entity have at most {MAX_PARTS_BYTES} bytes together")
    return parts


def _is_part(part: tuple[object, object]) -> bool:
    name, encoded = part
    return isinstance(name, str) and 1 <= len(name) <= MAX_PART_NAME and isinstance(encoded, bytes)
