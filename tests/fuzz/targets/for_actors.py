"""The link and what runs over it: datagrams of strangers, frames of peers that hold good keys and mean ill."""

import enum
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cbor2

from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.actors.http.websocket_end import WebSocketEnd
from batonpass.actors.link import Address, Link, LinkSettings
from batonpass.actors.link.frames import (
    CLOSE,
    MIN_PIECE_BYTES,
    PING,
    Ack,
    DatagramKind,
    Piece,
    data_run_length,
    message_head,
    piece_head,
    read_frames_untrusted,
    read_header_untrusted,
    read_piece_run_untrusted,
    read_usual_untrusted,
    write_ack,
    write_challenge,
    write_grant,
    write_header,
    write_response,
    write_want,
)
from batonpass.actors.observe.display import picture
from batonpass.actors.observe.plain_data import NotReplaceable, in_shape_of_untrusted
from batonpass.actors.remote import frames as remote
from batonpass.actors.remote.codec import Codec, DataOnly
from batonpass.actors.remote.errors import RemoteError, Undecodable
from batonpass.actors.remote.frames import read_message_untrusted, write_frame, write_message
from batonpass.actors.remote.peer import RemotePeer
from batonpass.actors.remote.settings import DistributionSettings
from batonpass.crypto.errors import Malformed
from tests.fuzz.target import Target
from tests.fuzz.world import IDENTITIES, private_key

PLACES: dict[str, Address] = {"alpha.h1": ("10.0.0.1", 1), "beta.h1": ("10.0.0.2", 2)}


# --- the link ---------------------------------------------------------------------------------------------------------


class _Ids:
    def __init__(self, first: int) -> None:
        self._next = itertools.count(first)
        self.used: set[int] = set()

    def allocate(self) -> int:
        session_id = next(self._next)
        self.used.add(session_id)
        return session_id

    def release(self, session_id: int) -> None:
        self.used.remove(session_id)


class _End:
    def __init__(self, name: str, peer: str, first_id: int) -> None:
        self.ids = _Ids(first_id)
        self.counters: Counter[str] = Counter()
        numbers = itertools.count()
        self.link = Link(
            name=name,
            identity=IDENTITIES[name],
            peer=peer,
            incarnation=first_id,
            ids=self.ids,
            new_ephemeral=lambda: private_key(f"{name} {next(numbers)}"),
            settings=LinkSettings(window_messages=64),
            counters=self.counters,
            now=0.0,
        )
        self.link.know_keys(IDENTITIES[peer].public)


def joined_ends() -> tuple[_End, _End]:
    """Two ends with a session, as after a first message."""
    alpha, beta = _End("alpha.h1", "beta.h1", 100), _End("beta.h1", "alpha.h1", 200)
    alpha.link.find_at(PLACES["beta.h1"], 0.0)
    alpha.link.send(b"hello", 0.0)
    for step in range(6):
        for sender, receiver, place in ((alpha, beta, "alpha.h1"), (beta, alpha, "beta.h1")):
            for datagram, _ in sender.link.datagrams_to_send(step / 100):
                receiver.link.receive(datagram, step / 100, PLACES[place])
    assert beta.link.take() is not None
    return alpha, beta


def _cut(data: bytes) -> Iterator[bytes]:
    """Two bytes of length, then so many bytes; again and again."""
    at = 0
    while at + 2 <= len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "little")
        yield data[at + 2 : end]
        at = end


def _joined_up(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(2, "little") + part for part in parts)


def _authenticated_peer(data: bytes) -> None:
    """Sealed frames of a peer with good keys, whatever they say: the link goes on, and holds at most the credit."""
    alpha, beta = joined_ends()
    session = alpha.link._sessions.current
    assert session is not None
    now = 1.0
    held = 0
    for counter, body in enumerate(itertools.islice(_cut(data), 200), 1000):
        header = write_header(DatagramKind.DATA, session.peer_session_id, counter)
        beta.link.receive(header + session.session.seal(counter, header, body), now, PLACES["alpha.h1"])
        beta.link.datagrams_to_send(now)
        beta.link.next_timer()
        while beta.link.next_event() is not None:
            pass
        while (message := beta.link.take()) is not None:
            held += len(message.data)
        now += 0.01
    assert held <= len(data) + 4 * 1024 * 1024
    beta.link.datagrams_to_send(now + 1.0)


def _train(data: bytes) -> None:
    """What a peer with good keys sends in one go is taken as if it had come datagram by datagram, whatever it is.

    The first two bytes are the size of the bodies; all datagrams of a train have one.
    """
    size = 1 + int.from_bytes(data[:2].ljust(2, b"\0"), "little") % 4096
    bodies = [data[at : at + size] for at in range(2, len(data) - size + 1, size)][:40]
    if not bodies:
        return
    outcomes = []
    for at_once in (True, False):
        alpha, beta = joined_ends()
        session = alpha.link._sessions.current
        assert session is not None
        first = beta.link.arrivals.ranges.largest + 1
        headers = [
            write_header(DatagramKind.DATA, session.peer_session_id, first + index) for index in range(len(bodies))
        ]
        train = [
            header + session.session.seal(first + index, header, body)
            for index, (header, body) in enumerate(zip(headers, bodies, strict=True))
        ]
        whole = b"".join(train)
        assert data_run_length(whole, len(train[0])) == len(train)
        if not (at_once and beta.link.receive_train(whole, len(train[0]), 1.0, PLACES["alpha.h1"])):
            for datagram in train:
                beta.link.receive(datagram, 1.0, PLACES["alpha.h1"])
        taken = []
        while (message := beta.link.take()) is not None:
            taken.append(message)
        incoming = beta.link._incoming
        holds = [
            (number, assembly.total_bytes, assembly.missing)
            for channel in incoming._channels
            for number, assembly in sorted(channel.assemblies.items())
        ]
        violations = beta.counters["dropped_violation"]
        outcomes.append((taken, holds, incoming.credit, violations, beta.link.arrivals.ranges.largest))
    assert outcomes[0] == outcomes[1]


def _train_seeds() -> list[bytes]:
    def of(channel: int, number: int, total: int, parts: range) -> bytes:
        bodies = [piece_head(channel, number, total, MIN_PIECE_BYTES, part) + bytes(MIN_PIECE_BYTES) for part in parts]
        return (len(bodies[0]) - 1).to_bytes(2, "little") + b"".join(bodies)

    return [
        of(2, 0, 20_000, range(5)),
        of(20, 5, 20_000, range(3, 8)),
        of(20, 5_000, 20_000, range(4)),
        of(2, 0, 2**23, range(4)),
        of(3, 0, 5 * MIN_PIECE_BYTES, range(5)),
    ]


def _frames(body: bytes) -> None:
    """The short reader must read what the long one reads, or nothing."""
    usual = read_usual_untrusted(body)
    frames = read_frames_untrusted(body)
    if usual is not None:
        ack, run = usual
        read = [] if run is None else [(run.channel, at, data) for at, data in enumerate(run.contents, run.number)]
        assert frames[ack is not None :] == read
        assert (ack is not None) == isinstance(frames[0], Ack)


def _piece_run(data: bytes) -> None:
    bodies = list(itertools.islice(_cut(data), 50)) or [data]
    run = read_piece_run_untrusted(bodies)
    if run is not None:
        assert b"".join(run[1]) == b"".join(bytes(frame.data) for body in bodies for frame in _pieces(body))


def _pieces(body: bytes) -> list[Piece]:
    return [frame for frame in read_frames_untrusted(body) if isinstance(frame, Piece)]


def _piece_run_seeds() -> list[bytes]:
    bodies = [piece_head(2, 0, 9_000, MIN_PIECE_BYTES, part) + bytes(MIN_PIECE_BYTES) for part in range(3)]
    return [_joined_up(*bodies), _joined_up(bodies[0], bodies[2]), _joined_up(PING, CLOSE)]


def _stranger(data: bytes) -> None:
    """Bare datagrams of somebody without keys: nothing that exists is touched."""
    _, beta = joined_ends()
    before = beta.link._sessions.current
    for datagram in itertools.islice(_cut(data), 50):
        beta.link.receive(datagram, 1.0, ("10.9.9.9", 9))
        beta.link.datagrams_to_send(1.0)
    assert beta.link._sessions.current is before
    assert beta.link.address == PLACES["alpha.h1"]
    assert beta.link.take() is None
    assert len(beta.ids.used) < 20


def _frame_seeds() -> list[bytes]:
    message = message_head(3, 1, 5) + b"hello"
    piece = piece_head(2, 0, 1500, MIN_PIECE_BYTES, 0) + bytes(MIN_PIECE_BYTES)
    rest = piece_head(2, 0, 1500, MIN_PIECE_BYTES, 1) + bytes(1500 - MIN_PIECE_BYTES)
    unordered = message_head(20, 3, 2) + b"go"
    ack = write_ack([(8, 10), (2, 5)], 0.001, 2**20, 100)
    path = write_challenge(7) + write_response(8)
    large = write_want(1, 2**23) + write_grant(1)
    begun = piece_head(5, 0, 2**23, MIN_PIECE_BYTES, 0) + bytes(MIN_PIECE_BYTES)
    return [message, piece, rest, unordered, ack, PING, path, large, begun, CLOSE, ack + message + PING + path + large]


def _stranger_seeds() -> list[bytes]:
    alpha = _End("alpha.h1", "beta.h1", 100)
    alpha.link.find_at(PLACES["beta.h1"], 0.0)
    alpha.link.send(b"hello", 0.0)
    hello = alpha.link.datagrams_to_send(0.0)[0][0]
    accept = write_header(DatagramKind.ACCEPT, 200, 0) + bytes(158)
    confirm = write_header(DatagramKind.CONFIRM, 200, 0) + b"\x01" + bytes(80)
    data = write_header(DatagramKind.DATA, 200, 99) + bytes(40)
    cookie = write_header(DatagramKind.COOKIE, 200, 7) + bytes(16)
    return [_joined_up(hello, accept, confirm, data, cookie), _joined_up(hello, hello)]


# --- distribution -----------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    """A registered enum."""

    RED = 1


@dataclass(frozen=True)
class Natural:
    """A registered dataclass that refuses by raising."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("a natural number is not negative")


def _codec() -> Codec:
    codec = Codec(DataOnly("alpha"))
    codec.register(Colour, "colour")
    codec.register(Natural, "natural")
    return codec


def _decode(data: bytes) -> object:
    return _codec().decode_untrusted(data)


def _codec_seeds() -> list[bytes]:
    codec = _codec()
    values: list[Any] = [
        {"a": [1, (2, b"x"), {3, 4}], "b": frozenset({"y"})}, Natural(3), Colour.RED, {(1, 2): None}, ValueError("no"),
        RemoteError("KeyError", "k", "beta"), [1.5, None, True, 2**63, "text"],
    ]  # fmt: skip
    return [codec.encode(value) for value in values]


def _peer() -> RemotePeer:
    return RemotePeer("beta", 7, itertools.count(1).__next__, DistributionSettings())


def _distribution(data: bytes) -> None:
    """Messages of a node that holds good keys; none may raise, and what it can make us remember is bounded."""
    peer = _peer()
    peer.receive_untrusted(write_message(0, [write_frame(remote.Open(remote.VERSION, 77, 5))]), 0.0)
    for number, message in enumerate(itertools.islice(_cut(data), 100)):
        peer.receive_untrusted(message, float(number))
        _drain(peer)
    peer.receive_untrusted(data, 200.0)
    _drain(peer)


def _drain(peer: RemotePeer) -> None:
    peer._effects.clear()
    peer._messages.clear()


def _distribution_seeds() -> list[bytes]:
    payload = cbor2.dumps("hello")
    frames: list[remote.Frame] = [
        remote.CallFrame("worker", 1, payload), remote.Cast("worker", payload), remote.MonitorIt((3, 9), 2),
        remote.LinkIt("worker", 3, payload), remote.CancelFrame(1), remote.ReplyFrame(4, payload), remote.Unlink(3, 1),
    ]  # fmt: skip
    return [
        write_message(0, [write_frame(remote.Open(remote.VERSION, 9, 5))]),
        _joined_up(write_message(1, [write_frame(frame) for frame in frames])),
        write_message(0, [write_frame(remote.CloseFrame(77))]),
        write_message(1, [write_frame(frame) for frame in frames]),
    ]


# --- states from operators --------------------------------------------------------------------------------------------


_STATE = {"natural": [Natural(1)], "point": {1: (2.5, "x", None)}, "colours": [b"1", Colour.RED], "open": True}


def _replace_state(data: bytes) -> None:
    in_shape_of_untrusted(read_json_untrusted(data), _STATE)


def _websocket_messages(data: bytes) -> None:
    end = WebSocketEnd(1000, 10)
    for start in range(0, len(data), 4096):
        came = end.take_untrusted(data[start : start + 4096])
        assert all(len(message) <= 1000 for message in came.messages)
        if came.close is not None:
            break


TARGETS = [
    Target(
        "link-header",
        read_header_untrusted,
        ["batonpass.actors.link.frames:read_header_untrusted"],
        lambda: [write_header(DatagramKind.DATA, 7, 9)],
        (Malformed,),
    ),
    Target(
        "link-frames",
        _frames,
        ["batonpass.actors.link.frames:read_frames_untrusted", "batonpass.actors.link.frames:read_usual_untrusted"],
        _frame_seeds,
        (Malformed,),
    ),
    Target(
        "link-authenticated-peer",
        _authenticated_peer,
        [],
        lambda: [_joined_up(*_frame_seeds()[:-1]), _joined_up(_frame_seeds()[-1])],
        slow=True,
    ),
    Target("link-train", _train, [], _train_seeds, slow=True),
    Target(
        "link-piece-run",
        _piece_run,
        [
            "batonpass.actors.link.frames:read_piece_run_untrusted",
            "batonpass.actors.link.frames:read_lone_piece_untrusted",
        ],
        _piece_run_seeds,
        (Malformed,),
    ),
    Target("link-stranger", _stranger, [], _stranger_seeds, slow=True),
    Target(
        "remote-codec",
        _decode,
        ["batonpass.actors.remote.codec:Codec.decode_untrusted"],
        _codec_seeds,
        (Undecodable,),
        plain="",
    ),
    Target(
        "remote-frames",
        read_message_untrusted,
        ["batonpass.actors.remote.frames:read_message_untrusted"],
        lambda: _distribution_seeds()[-1:],
        (Undecodable,),
        plain="cbor",
    ),
    Target(
        "remote-peer", _distribution, ["batonpass.actors.remote.peer:RemotePeer.receive_untrusted"], _distribution_seeds
    ),
    Target(
        "strict-json",
        read_json_untrusted,
        [
            "batonpass.actors.http.strict_json:read_json_untrusted",
            "batonpass.actors.http.strict_json:count_values_untrusted",
        ],
        lambda: [b'{"a": [1, 2.5, null, "x"]}', b"[" * 300 + b"]" * 300],
        (ValueError,),
        plain="json",
    ),
    Target(
        "websocket-end",
        _websocket_messages,
        ["batonpass.actors.http.websocket_end:WebSocketEnd.take_untrusted"],
        lambda: [b"\x01\x83\0\0\0\0two\x89\x80\0\0\0\0\x80\x84\1\2\3\4!..a\x88\x82\0\0\0\0\x03\xe8"],
    ),
    Target(
        "replaced-state",
        _replace_state,
        ["batonpass.actors.observe.plain_data:in_shape_of_untrusted"],
        lambda: [json.dumps(picture(_STATE)).encode(), b"null"],
        (ValueError, NotReplaceable),
        plain="json",
    ),
]
