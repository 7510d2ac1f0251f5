"""What a snapshot and the changes after it come to, without a replica: what later messages replace is left out."""

import struct
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from batonpass.simserver.sync.scene.codec import MessageKind, write_run
from batonpass.simserver.sync.scene.entity_ids import MAX_NUMBER, RESERVED_NUMBERS
from batonpass.simserver.sync.scene.profiles import SDK_7_28, InteropProfile

__all__ = ["folded"]

_HEAD: Final = struct.Struct("<3I")
_COMPONENT: Final = struct.Struct("<I")
_COMPONENT_AT: Final = 12
_LEAST_BYTES: Final[Mapping[int, int]] = MappingProxyType(
    {
        int(MessageKind.PUT): 24,
        int(MessageKind.DELETE): 20,
        int(MessageKind.DELETE_ENTITY): 12,
        int(MessageKind.APPEND): 24,
    }
)


def folded(messages: bytes, profile: InteropProfile = SDK_7_28) -> bytes:
    """Messages that make an empty replica equal to what these make of it.

    It takes a quarter of the time in which a replica takes them, and says them again.

    Args:
        messages: whole and good ones, by ids: of a snapshot, and of changes that were taken after it, in order.
        profile: how many values a set has.

    Raises:
        ValueError: if they are not whole and good.
    """
    entities: dict[int, dict[tuple[int, ...], bytes]] = {}
    bearers: dict[int, list[int]] = {}
    gone: dict[int, int] = {}
    appended = Counter[tuple[int, int]]()
    at, head, component_of = 0, _HEAD.unpack_from, _COMPONENT.unpack_from
    while at < len(messages):
        if len(messages) - at < _HEAD.size:
            raise ValueError(f"{len(messages) - at} bytes at the end of {len(messages)} are no message")
        length, kind, entity = head(messages, at)
        if not _LEAST_BYTES.get(kind, len(messages) + 1) <= length <= len(messages) - at:
            raise ValueError(f"a message of kind {kind} at byte {at} says that it has {length} bytes")
        began, at = at, at + length
        number = entity & MAX_NUMBER
        if kind == MessageKind.DELETE_ENTITY:
            if number >= RESERVED_NUMBERS:
                gone[number] = max(gone.get(number, 0), entity)
                _drop(entities, bearers, number, entity)
            continue
        if entity not in entities:
            if number >= RESERVED_NUMBERS:
                if gone.get(number, -1) >= entity or max(bearers.get(number, ()), default=-1) > entity:
                    # It was removed, or is an earlier bearer of its number.
                    continue
                _drop(entities, bearers, number, entity)
                bearers.setdefault(number, []).append(entity)
            entities[entity] = {}
        values = entities[entity]
        key: tuple[int, ...] = component_of(messages, began + _COMPONENT_AT)
        if kind == MessageKind.APPEND:
            appended[entity, key[0]] += 1
            key = (*key, appended[entity, key[0]] % profile.max_values)
        values.pop(key, None)
        values[key] = messages[began:at]
    kept = b"".join([message for values in entities.values() for message in values.values()])
    return kept + write_run(MessageKind.DELETE_ENTITY, [list(gone.values())])


def _drop(
    entities: dict[int, dict[tuple[int, ...], bytes]], bearers: dict[int, list[int]], number: int, upto: int
) -> None:
    """Forget the bearers of a number up to this one."""
    for entity in [entity for entity in bearers.get(number, ()) if entity <= upto]:
        bearers[number].remove(entity)
        del entities[entity]
