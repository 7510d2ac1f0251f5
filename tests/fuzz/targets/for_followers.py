"""Targets of shows: datagrams at a controller, a follower and a node that surveys, and what they are made of."""

from random import Random

from batonpass.simserver.sync.followers import datagrams, delta, frames
from batonpass.simserver.sync.followers.datagrams import BeginPart, ShowDatagramKind
from batonpass.simserver.sync.followers.frames import FrameHead, HeadFlag, PayloadKind
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.sealing import GroupSeal
from batonpass.simserver.sync.followers.settings import ShowSettings
from batonpass.simserver.sync.followers.structs import FrameData, state_digest
from tests.fuzz.target import Target

_MAX_BYTES = 1024 * 1024
_SETTINGS = ShowSettings(max_state_bytes=_MAX_BYTES, max_open_bytes=4 * _MAX_BYTES, window_bytes=4 * _MAX_BYTES)
_PUBLICS = {"a": b"a", "b": b"b"}


class _AnySigning:
    """The fuzzer is the peer that can sign."""

    def sign(self, message: bytes) -> bytes:
        return bytes(64)

    def verifies(self, public: bytes, message: bytes, signature: bytes) -> bool:
        return True


def _node(role: str) -> NodeMachine:
    node = NodeMachine("a", _SETTINGS, _AnySigning(), Random(1), 0)
    node.members(_PUBLICS)
    if role == "follower":
        node.follow("b", 1, 0)
    else:
        node.granted(1, 1, 0)
        node.may_send_below(100)
        if role == "controller":
            node.tick(200_000_000)
    return node


def _receive(data: bytes) -> None:
    """Datagrams with their lengths before them, to a node of each kind."""
    for role in ("follower", "controller", "survey"):
        # A survey waits for a tenth of a second.
        node, at, now_ns = _node(role), 0, 1_000_000 if role == "survey" else 300_000_000
        while at + 2 <= len(data):
            end = at + 2 + int.from_bytes(data[at : at + 2], "little")
            node.receive("b", data[at + 2 : end], now_ns)
            node.tick(now_ns)
            node.take_events()
            node.take_outgoing()
            at, now_ns = end, now_ns + 1_000_000


def _head(payload: bytes, frame: int = 1) -> FrameHead:
    digest = state_digest(payload)
    return FrameHead(
        1, frame, frame - 1, PayloadKind.STATE, 0, len(payload), 64, digest, digest, 0, FrameData(), HeadFlag.NO_FLAGS
    )


def _seeds() -> list[bytes]:
    state = bytes(100)
    head = _head(state)
    of = ShowDatagramKind
    good = [
        datagrams.pack_begin(1, 1, BeginPart(0, 1, 0, HeadFlag.NO_FLAGS, FrameData())),
        datagrams.pack_head(head, bytes(64), state[:64]),
        datagrams.pack_piece(of.PIECE, 1, 1, 1, state[64:], to_all=True),
        datagrams.pack_piece(of.PIECE, 1, 1, 1, state[64:]),
        datagrams.pack_datagram(of.MISSING, 1, 1, datagrams.pack_ranges([(0, 1)])),
        datagrams.pack_datagram(of.SURVEY_ANSWER, 1, 1, head.pack() + bytes(64)),
        datagrams.pack_fetched(1, 1, 0, 100, state),
        datagrams.pack_datagram(of.FETCH, 1, 1, datagrams.pack_ranges([(0, 1)])),
        datagrams.pack_interaction(1, 1, 5, 1, b"data"),
        datagrams.pack_datagram(of.INTERACTION_ACK, 1, 1, bytes(8)),
        datagrams.pack_datagram(of.TREE, 1, 1, datagrams.pack_names(["b"])),
        datagrams.pack_dropped(1, 1, 2, "lost"),
    ]
    return [b"".join(len(one).to_bytes(2, "little") + one for one in good)]


_ROOM = "batonpass.simserver.sync.followers"
TARGETS = [
    Target(
        "show-node",
        _receive,
        [
            f"{_ROOM}.datagrams:{name}"
            for name in (
                "begin_of_untrusted",
                "dropped_of_untrusted",
                "fetched_of_untrusted",
                "interaction_of_untrusted",
                "names_of_untrusted",
                "number_of_untrusted",
                "piece_of_untrusted",
                "quick_piece_of_untrusted",
                "ranges_of_untrusted",
                "read_datagram_untrusted",
                "signed_head_of_untrusted",
            )
        ],
        _seeds,
        slow=True,
    ),
    Target(
        "show-head",
        frames.head_of_untrusted,
        [f"{_ROOM}.frames:head_of_untrusted"],
        lambda: [_head(b"state").pack()],
    ),
    Target(
        "show-delta",
        lambda data: delta.apply_delta_untrusted(bytes(1_000), data, _MAX_BYTES),
        [f"{_ROOM}.delta:apply_delta_untrusted"],
        lambda: [delta.delta_of(bytes(1_000), bytes(500) + b"x" * 700)],
    ),
    Target(
        "show-seal",
        lambda data: GroupSeal(bytes(32), 1, 1).open_untrusted(data),
        [f"{_ROOM}.sealing:GroupSeal.open_untrusted"],
        lambda: [GroupSeal(bytes(32), 1, 2).seal(b"datagram")],
    ),
]
