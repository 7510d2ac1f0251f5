"""What the server that simulates a stream gives it as inputs: requests of clients, snapshots, and who was heard.

They wait in the inbox of the entity and move along with it, so private ids are in them only as their SHA-256.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from batonpass.simserver.sync.events.messages import PostedEvent, StreamRequest
from batonpass.simserver.sync.events.snapshots import SnapshotOffer
from batonpass.tree.data.data import decode_untrusted, encode
from batonpass.tree.data.errors import BadData

__all__ = ["DumpGiven", "Heard", "SnapshotGiven", "StreamInput", "disguised", "encoded_input", "read_input"]

_REQUEST: Final = "request"
_HEARD: Final = "heard"
_SNAPSHOT: Final = "snapshot"
_DUMP: Final = "dump"


@dataclass(frozen=True, slots=True)
class Heard:
    """The clients that have an open connection, or have asked without changing anything; perhaps none."""

    clients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotGiven:
    """A client offers a snapshot."""

    client: str
    offer: SnapshotOffer


@dataclass(frozen=True, slots=True)
class DumpGiven:
    """A client says what its state was at the tick of a desync."""

    client: str
    tick: int
    dump: str


StreamInput = StreamRequest | Heard | SnapshotGiven | DumpGiven
"""In all of them a client's private id is `disguised`."""


def disguised(private_id: str) -> str:
    """A private id as the inputs have it: 64 hexadecimal digits that do not lead back to it."""
    return hashlib.sha256(private_id.encode()).hexdigest()


def encoded_input(item: StreamInput) -> bytes:
    """The input as plain CBOR data."""
    row: list[Any]
    match item:
        case StreamRequest():
            events = [[event.type, event.body, event.number] for event in item.events]
            state = None if item.state is None else dict(item.state)
            hashes = [list(voted) for voted in item.hashes]
            row = [_REQUEST, item.private_id, item.known, events, state, item.incarnation, item.leave, hashes]
        case Heard():
            row = [_HEARD, list(item.clients)]
        case SnapshotGiven(client, offer):
            signed = [offer.state, offer.state_hash, offer.key, offer.signature]
            row = [_SNAPSHOT, client, offer.incarnation, offer.tick, *signed]
        case DumpGiven():
            row = [_DUMP, item.client, item.tick, item.dump]
    return encode(row)


def read_input(data: bytes) -> StreamInput | None:
    """What `encoded_input` wrote; None if it is anything else, as from a server of another release."""
    try:
        kind, *fields = decode_untrusted(data)
        return _READERS[kind](*fields)
    except (BadData, KeyError, TypeError, ValueError):
        return None


def _request(
    client: str, known: int, events: Any, state: Any, incarnation: str | None, leave: bool, hashes: Any
) -> StreamRequest:
    return StreamRequest(
        private_id=client,
        known=known,
        events=tuple(PostedEvent(*event) for event in events),
        state=state,
        incarnation=incarnation,
        leave=leave,
        hashes=tuple((tick, state_hash) for tick, state_hash in hashes),
    )


def _snapshot(client: str, *fields: Any) -> SnapshotGiven:
    return SnapshotGiven(client, SnapshotOffer(*fields))


_READERS: Final[dict[str, Callable[..., StreamInput]]] = {
    _REQUEST: _request,
    _HEARD: lambda clients: Heard(tuple(clients)),
    _SNAPSHOT: _snapshot,
    _DUMP: DumpGiven,
}
