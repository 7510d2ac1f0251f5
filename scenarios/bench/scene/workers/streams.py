"""The bytes that all subjects get. Run as a program, it writes those of a work to its output.

Each stream is chunks of equal numbers of messages, and each chunk of a stream has the same number of bytes.
"""

import struct
import sys
from typing import Final

from batonpass.simserver.sync.scene.codec import MessageKind, MessageRow, write_run

__all__ = ["CHUNKS", "MESSAGES", "MIXED_COMPONENTS", "NETWORK", "mixed_chunks", "network_chunks", "transform_chunks"]

CHUNKS: Final = 20
MESSAGES: Final = 10_000
"""In a chunk, one for each entity."""
MIXED_COMPONENTS: Final = (1_017, 1_018, 1_019, 1_041)
NETWORK: Final = 77
"""The network id of the peer that has created the entities of `network_chunks`."""
_NETWORK_CHUNKS: Final = 6
_FIRST: Final = 512
_TRANSFORM: Final = struct.Struct("<10fI")


def _transform(entity: int, timestamp: int) -> bytes:
    return _TRANSFORM.pack(entity + timestamp, 1, entity, 0, 0, 0, 1, 1, 1, 1, 0)


def _puts(kind: MessageKind, rows: list[MessageRow]) -> bytes:
    return write_run(kind, [list(column) for column in zip(*rows, strict=True)])


def transform_chunks() -> list[bytes]:
    """A newer Transform for each entity in each chunk."""
    entities = range(_FIRST, _FIRST + MESSAGES)
    return [
        _puts(MessageKind.PUT, [(entity, 1, timestamp, _transform(entity, timestamp)) for entity in entities])
        for timestamp in range(1, CHUNKS + 1)
    ]


def mixed_chunks() -> list[bytes]:
    """Newer values of five lengths for one component of each entity in each chunk."""
    lengths = (4, 8, 17, 44, 60)
    return [
        _puts(
            MessageKind.PUT,
            [
                (_FIRST + at, MIXED_COMPONENTS[at % 4], timestamp, bytes((timestamp,)) * lengths[at % 5])
                for at in range(MESSAGES)
            ],
        )
        for timestamp in range(1, CHUNKS + 1)
    ]


def network_chunks(entities: int) -> list[bytes]:
    """A newer Transform under a network id for each entity in each chunk; the first creates them."""
    return [
        _puts(
            MessageKind.PUT_NETWORK,
            [
                (entity, 1, timestamp, NETWORK, _transform(entity, timestamp))
                for entity in range(_FIRST, _FIRST + entities)
            ],
        )
        for timestamp in range(1, _NETWORK_CHUNKS + 1)
    ]


def _main() -> None:
    work, _, entities = sys.argv[1].partition("-")
    chunks = transform_chunks() if work == "apply" else network_chunks(int(entities))
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)


if __name__ == "__main__":
    _main()
