"""Messages of a scene to bytes and back: docs/reference/scene.md has the table.

A chunk is read at once, for one call a message is what Python has no time for. Messages come as *runs*, neighbours of
one kind in their order, and a run comes as columns: one list of all entities, one of all timestamps, and so on. A tuple
for each message would be looked at by the collector of cycles, which takes longer than reading it.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

__all__ = [
    "DATA_KINDS",
    "HEADER_BYTES",
    "MAX_U32",
    "ChunkRead",
    "Columns",
    "MessageKind",
    "MessageRow",
    "SceneRun",
    "read_chunk_untrusted",
    "write_message",
    "write_run",
]

HEADER_BYTES: Final = 8
"""Of every message: its length with the header, and its kind, each a u32."""

MAX_U32: Final = 0xFFFF_FFFF


class MessageKind(IntEnum):
    """What a message is, under the numbers of the wire. In brackets: what a row of the kind has, in this order."""

    PUT = 1
    """A component has this value. (entity, component, timestamp, data)"""
    DELETE = 2
    """A component has no value. (entity, component, timestamp)"""
    DELETE_ENTITY = 3
    """An entity is no more. (entity,)"""
    APPEND = 4
    """A value more in a set; the timestamp is 0. (entity, component, timestamp, data)"""
    PUT_NETWORK = 5
    """PUT under the sender's number for the entity. (entity, component, timestamp, network, data)"""
    DELETE_NETWORK = 6
    """DELETE under the sender's number for the entity. (entity, component, timestamp, network)"""
    DELETE_ENTITY_NETWORK = 7
    """DELETE_ENTITY under the sender's number for the entity. (entity, network)"""
    AUTHORITATIVE_PUT = 8
    """PUT by the authority: value and timestamp hold, whatever is stored. (entity, component, timestamp, data)"""


MessageRow = tuple[Any, ...]
"""The numbers of a message, each a u32, and its data (`bytes`) if the kind has any: see `MessageKind`."""

Columns = Sequence[list[Any]]
"""The rows of messages of one kind, column by column."""


class SceneRun(NamedTuple):
    """Neighbouring messages of one kind, in their order.

    Attributes:
        kind: a `MessageKind`, as the number that was read.
        columns: for each place of a row, that of all messages.
    """

    kind: int
    columns: Columns

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.columns[0])

    @property
    def rows(self) -> Iterable[MessageRow]:
        """The messages, one after the other."""
        return zip(*self.columns, strict=True)


class ChunkRead(NamedTuple):
    """What a chunk has.

    Attributes:
        runs: the whole messages, up to the first bad one.
        used_bytes: up to where the chunk was read; what remains is a message that is not whole, or bad.
        skipped: how many whole messages had an unknown kind.
        refusal: what is wrong with the message at `used_bytes`; empty if nothing is.
    """

    runs: list[SceneRun]
    used_bytes: int
    skipped: int
    refusal: str


DATA_KINDS: Final = frozenset(
    {MessageKind.PUT, MessageKind.APPEND, MessageKind.PUT_NETWORK, MessageKind.AUTHORITATIVE_PUT}
)
"""The kinds whose last number is the length of the data that follow."""

_U32S: Final = {
    MessageKind.PUT: 6,
    MessageKind.DELETE: 5,
    MessageKind.DELETE_ENTITY: 3,
    MessageKind.APPEND: 6,
    MessageKind.PUT_NETWORK: 7,
    MessageKind.DELETE_NETWORK: 6,
    MessageKind.DELETE_ENTITY_NETWORK: 4,
    MessageKind.AUTHORITATIVE_PUT: 6,
}
# What comes before the data, the header with it.
_FIXED: Final = {int(kind): struct.Struct(f"<{count}I") for kind, count in _U32S.items()}
_WITH_DATA: Final = frozenset(map(int, DATA_KINDS))
_UNPACK_HEADER: Final = struct.Struct("<2I").unpack_from
_UNPACK_PUT: Final = _FIXED[MessageKind.PUT].unpack_from
_PACK_PUT: Final = _FIXED[MessageKind.PUT].pack
_PUT_BYTES: Final = _FIXED[MessageKind.PUT].size
# Larger blocks take longer, since they leave the caches.
_BLOCK: Final = 64
_MAX_ALIKE_BYTES: Final = 1_024
# The kinds that are read and written in one step: four numbers and data.
_AS_PUT: Final = frozenset(map(int, (MessageKind.PUT, MessageKind.APPEND, MessageKind.AUTHORITATIVE_PUT)))


def _cold_row(chunk: bytes, at: int, length: int, kind: int) -> MessageRow | str:
    """A message that is whole, or what is wrong with it."""
    fixed = _FIXED[kind]
    if length < fixed.size:
        return f"a message of kind {kind} has {length} bytes, {fixed.size} at least are needed"
    numbers = fixed.unpack_from(chunk, at)
    if kind not in _WITH_DATA:
        return numbers[2:] if length == fixed.size else f"a message of kind {kind} has {length} bytes, not {fixed.size}"
    if numbers[-1] != length - fixed.size:
        return f"a message of kind {kind} has {length - fixed.size} bytes of data and says {numbers[-1]}"
    return *numbers[2:-1], chunk[at + fixed.size : at + length]


def read_chunk_untrusted(chunk: bytes, max_message_bytes: int = MAX_U32) -> ChunkRead:
    """Read the messages of a chunk that any peer may have sent.

    Args:
        chunk: messages one after the other. The last need not be whole.
        max_message_bytes: a message that says that it is longer is bad.

    Returns: The messages before the first that is bad, which `refusal` tells of: nothing behind it can be found. An
        unknown kind is skipped by its length, as every reader of this format does.
    """
    runs: list[SceneRun] = []
    at, end, last, skipped = 0, len(chunk), -1, 0
    previous, next_try = 0, 0
    unpack, as_put, put_bytes = _UNPACK_PUT, _AS_PUT, _PUT_BYTES
    columns: Columns = ()
    nowhere: Callable[[Any], None] = _add_nowhere
    add_entity = add_component = add_timestamp = add_data = nowhere
    while end - at >= HEADER_BYTES:
        if end - at >= put_bytes:
            length, kind, entity, component, timestamp, data_bytes = unpack(chunk, at)
            stop = at + length
            if kind in as_put and data_bytes == length - put_bytes and stop <= end and length <= max_message_bytes:
                if kind != last:
                    columns, last = _begun(runs, kind), kind
                    add_entity, add_component, add_timestamp, add_data = [column.append for column in columns]
                add_entity(entity)
                add_component(component)
                add_timestamp(timestamp)
                add_data(chunk[at + put_bytes : stop])
                at = stop
                if length == previous and at >= next_try:
                    at = _read_alike(chunk, at, length, kind, columns)
                    next_try = at + _BLOCK * length
                previous = length
                continue
        length, kind = _UNPACK_HEADER(chunk, at)
        if not HEADER_BYTES <= length <= max_message_bytes:
            return ChunkRead(runs, at, skipped, f"a message of kind {kind} says that it has {length} bytes")
        if length > end - at:
            break
        if kind not in _FIXED:
            skipped += 1
        else:
            row = _cold_row(chunk, at, length, kind)
            if isinstance(row, str):
                return ChunkRead(runs, at, skipped, row)
            if kind != last:
                columns, last = _begun(runs, kind), kind
            for column, value in zip(columns, row, strict=True):
                column.append(value)
        at += length
    return ChunkRead(runs, at, skipped, "")


def _read_alike(chunk: bytes, at: int, length: int, kind: int, columns: Columns) -> int:
    """Put messages to a run that are like its last one in length and kind, in whole blocks; where they end.

    A block in which one is not alike is left to the reader of single messages. It is not tried again before all of its
    bytes are read, so no chunk can have any byte read more than twice.
    """
    if length > _MAX_ALIKE_BYTES:
        return at
    unpack, block_bytes = _alike(length - _PUT_BYTES).iter_unpack, _BLOCK * length
    whole, data_bytes = memoryview(chunk), length - _PUT_BYTES
    while len(chunk) - at >= block_bytes:
        lengths, kinds, *numbers, sizes, datas = zip(*unpack(whole[at : at + block_bytes]), strict=True)
        if lengths.count(length) != _BLOCK or kinds.count(kind) != _BLOCK or sizes.count(data_bytes) != _BLOCK:
            break
        for column, values in zip(columns, (*numbers, datas), strict=True):
            column.extend(values)
        at += block_bytes
    return at


@lru_cache(maxsize=64)
def _alike(data_bytes: int) -> struct.Struct:
    return struct.Struct(f"<6I{data_bytes}s")


def _add_nowhere(value: Any) -> None:
    """What adds to a column, before there is a run."""


def _begun(runs: list[SceneRun], kind: int) -> Columns:
    """The columns of a new run, which is put to the others."""
    # The length and the kind are no part of a row; the length of the data stands for them.
    columns: Columns = tuple([] for _ in range(_U32S[MessageKind(kind)] - 2))
    runs.append(SceneRun(kind, columns))
    return columns


def write_message(kind: int, row: MessageRow) -> bytes:
    """One message as bytes.

    Raises:
        struct.error: if a number is no u32, or the row is not one of this kind.
    """
    return write_run(kind, [[value] for value in row])


def write_run(kind: int, columns: Columns) -> bytes:
    """Messages of one kind as bytes, in their order; errors are those of `write_message`."""
    fixed = _FIXED[kind]
    size = fixed.size
    if kind in _AS_PUT:
        return b"".join(
            [
                _PACK_PUT(size + len(data), kind, entity, component, timestamp, len(data)) + data
                for entity, component, timestamp, data in zip(*columns, strict=True)
            ]
        )
    pack = fixed.pack
    if kind in _WITH_DATA:
        *numbers, datas = columns
        return b"".join(
            [pack(size + len(data), kind, *row, len(data)) + data for *row, data in zip(*numbers, datas, strict=True)]
        )
    return b"".join([pack(size, kind, *row) for row in zip(*columns, strict=True)])
