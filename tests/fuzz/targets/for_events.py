"""What reaches a server of event streams over HTTP and over the link, and what it answers over the link."""

import base64
import hashlib
import json

from batonpass.actors.http.link_frames import (
    BadLinkFrame,
    LinkAnswer,
    LinkAsk,
    read_link_answer_untrusted,
    read_link_ask_untrusted,
    write_link_answer,
    write_link_ask,
)
from batonpass.actors.http.link_server import PROVED_PEER
from batonpass.crypto.keys import Identity
from batonpass.simserver.sync.door.stream_door import _target_untrusted
from batonpass.simserver.sync.events.json_form import (
    StreamAction,
    StreamTarget,
    read_path_untrusted,
    read_relay_untrusted,
    read_request_untrusted,
    read_snapshot_untrusted,
    write_relay,
    write_reply,
)
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.refusals import StreamRefusal
from batonpass.simserver.sync.events.stream import StreamMachine
from batonpass.simserver.sync.play.over_link import read_server_row_untrusted
from tests.fuzz.target import Target

_LIMITS = StreamLimits()
_SYNC = StreamTarget(StreamAction.SYNC, "game", "me", 3)
_HASH = hashlib.sha256(b"state").hexdigest()


def _path(data: bytes) -> object:
    method, _, path = data.decode("latin-1").partition(" ")
    return read_path_untrusted(method, path, _LIMITS)


def _of_peer(data: bytes) -> None:
    """A request of a peer, who is taken for nobody else whatever he sends."""
    ask = read_link_ask_untrusted(data)
    scope = {"raw_path": ask.path.encode("ascii"), "extensions": {PROVED_PEER: "alpha.ada"}}
    target = _target_untrusted(ask.method, scope, _LIMITS)
    if target.private_id not in {"", "peer of the link alpha.ada"}:
        raise AssertionError(f"{target} is of another client")


def _of_peer_seeds() -> list[bytes]:
    asks = [("POST", "/game/-/3"), ("PUT", "/a%20game/-/snapshot/3"), ("DELETE", "/game/-"), ("GET", "/game/desync")]
    others = [("POST", "/game/me/3"), ("GET", "/game/peer%20of%20the%20link%20alpha.bob/0?known=1")]
    return [write_link_ask(LinkAsk(7, method, path, b"{}")) for method, path in asks + others]


def _server_row_seeds() -> list[bytes]:
    keys = Identity.generate().public.to_jwks()
    return [json.dumps({"keys": keys, "link_host": "10.0.0.1", "link_port": 7}).encode(), b"{}"]


def _request(data: bytes) -> object:
    stream = StreamMachine("0" * 32, _LIMITS)
    stream.apply(read_request_untrusted(_SYNC, b"", _LIMITS), 0)
    stream.advance(5)
    return json.loads(write_reply(stream.apply(read_request_untrusted(_SYNC, data, _LIMITS), 1_000)))


def _relay(data: bytes) -> object:
    stream = StreamMachine("0" * 32, _LIMITS)
    target = read_path_untrusted("POST", "/object/gamerelay/game/sync", _LIMITS)
    stream.apply(read_relay_untrusted(target, "secret", data, _LIMITS), 0)
    stream.advance(5)
    return json.loads(write_relay(stream.apply(read_relay_untrusted(target, "secret", b"", _LIMITS), 1_000)))


def _request_seeds() -> list[bytes]:
    events = [{"Type": "move", "Body": "x", "Id": 1}, {"Type": "<&>"}]
    whole = {"Events": events, "State": {"a": "b"}, "Incarnation": "0" * 32, "Wait": 1.5, "Hashes": [[2, _HASH]]}
    return [json.dumps(whole).encode(), b'{"Leave":true}', b""]


def _snapshot_seeds() -> list[bytes]:
    fields = {"State": b"state", "Key": bytes(32), "Signature": bytes(64)}
    texts = {name: base64.b64encode(value).decode() for name, value in fields.items()}
    return [json.dumps({**texts, "Incarnation": "0" * 32, "Hash": _HASH}).encode()]


TARGETS = [
    Target(
        "event-stream-path",
        _path,
        [
            "batonpass.simserver.sync.events.json_form:read_known_untrusted",
            "batonpass.simserver.sync.events.json_form:read_path_untrusted",
        ],
        lambda: [b"POST /game/me/3", b"PUT /a%20game/me/snapshot/3", b"DELETE /game/me", b"GET /game/desync"],
        (StreamRefusal,),
    ),
    Target(
        "event-stream-request",
        _request,
        [
            "batonpass.simserver.sync.events.json_form:_json_untrusted",
            "batonpass.simserver.sync.events.json_form:read_request_untrusted",
            "batonpass.simserver.sync.events.json_form:read_text_untrusted",
        ],
        _request_seeds,
        (StreamRefusal,),
        plain="json",
    ),
    Target(
        "event-stream-relay",
        _relay,
        ["batonpass.simserver.sync.events.json_form:read_relay_untrusted"],
        lambda: [b'{"t":-1,"events":[{"t":3,"type":"move","origin":0,"body":"x"}]}', b'{"t":2}', b""],
        (StreamRefusal,),
        plain="json",
    ),
    Target(
        "event-stream-snapshot",
        lambda data: read_snapshot_untrusted(_SYNC, data, _LIMITS).require_genuine(),
        ["batonpass.simserver.sync.events.json_form:read_snapshot_untrusted"],
        _snapshot_seeds,
        (StreamRefusal,),
        plain="json",
    ),
    Target(
        "event-stream-peer",
        _of_peer,
        [
            "batonpass.actors.http.link_frames:read_link_ask_untrusted",
            "batonpass.simserver.sync.door.stream_door:_target_untrusted",
        ],
        _of_peer_seeds,
        (BadLinkFrame, StreamRefusal),
    ),
    Target(
        "link-http-answer",
        read_link_answer_untrusted,
        ["batonpass.actors.http.link_frames:read_link_answer_untrusted"],
        lambda: [write_link_answer(LinkAnswer(7, 200, b"{}")), write_link_answer(LinkAnswer(2**64 - 1, 503, b""))],
        (BadLinkFrame,),
    ),
    Target(
        "server-row",
        lambda data: read_server_row_untrusted(json.loads(data)),
        ["batonpass.simserver.sync.play.over_link:read_server_row_untrusted"],
        _server_row_seeds,
        (OSError, ValueError, RecursionError),
        plain="json",
    ),
]
