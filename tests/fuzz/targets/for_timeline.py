"""A saved timeline, and what peers of a stream say: a file, a snapshot that one who joins is given, and events."""

import cbor2

from batonpass.simserver.sync.timeline.events import TimelineEvent
from batonpass.simserver.sync.timeline.peer_wire import PeerMessagesRefused, read_messages_untrusted, write_messages
from batonpass.simserver.sync.timeline.persistence import NotPersistent, dump, load_untrusted
from batonpass.simserver.sync.timeline.sharing import (
    ChunkDigest,
    ChunkEvents,
    InputPromise,
    PeerMessage,
    SharedHistory,
    SharedInput,
    TakenBack,
    TimelinePeer,
)
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import extended
from tests.fuzz.target import Target
from tests.simserver.sync.timeline.village import TYPES, Leave, Pay, make_village

_CHUNK = 20


def _saved() -> list[bytes]:
    snapshots = [TimeSteward(make_village).snapshot_before(base) for base in (0, 40)]
    return [dump(snapshot, TYPES) for snapshot in snapshots if snapshot is not None]


def _allows(_: str, event: TimelineEvent) -> bool:
    return isinstance(event, Leave | Pay)


_STATE = TimelinePeer(TimeSteward(make_village), TYPES, _allows, chunk=_CHUNK).shared_state().state


def _joined(data: bytes) -> object:
    peer = TimelinePeer.joined_untrusted(SharedHistory(data, _STATE), TYPES, _allows, chunk=_CHUNK)
    return peer.shared_state()


def _tables() -> list[bytes]:
    peer = TimelinePeer(TimeSteward(make_village), TYPES, _allows, chunk=_CHUNK)
    peer.receive("7", InputPromise(5))
    peer.receive("7", SharedInput(8, Pay(2)))
    return [peer.shared_state().table, cbor2.dumps([0, 0, [], [], []])]


def _texts() -> list[bytes]:
    messages: list[PeerMessage] = [
        SharedInput(5, Pay(1)),
        TakenBack(1),
        InputPromise(7),
        ChunkDigest(0, "ab"),
        ChunkEvents(0, ((extended(1, 0, 0, 2), "cd"),)),
    ]
    return [text.encode() for text in write_messages(messages, TYPES)]


TARGETS = [
    Target(
        "timeline-saved",
        lambda data: load_untrusted(data, TYPES),
        ["batonpass.simserver.sync.timeline.persistence:load_untrusted"],
        _saved,
        (NotPersistent,),
        plain="cbor",
    ),
    Target(
        "timeline-joined",
        _joined,
        ["batonpass.simserver.sync.timeline.sharing:TimelinePeer.joined_untrusted"],
        _tables,
        (NotPersistent,),
        plain="cbor",
    ),
    Target(
        "timeline-messages",
        lambda data: read_messages_untrusted(data.decode("latin-1"), TYPES),
        [
            "batonpass.simserver.sync.timeline.peer_wire:read_messages_untrusted",
            "batonpass.simserver.sync.timeline.persistence:PersistentTypes.event_untrusted",
        ],
        _texts,
        (PeerMessagesRefused,),
    ),
]
