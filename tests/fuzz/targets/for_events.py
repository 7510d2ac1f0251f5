"""What reaches a server of event streams over HTTP."""

import base64
import hashlib
import json

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
from tests.fuzz.target import Target

_LIMITS = StreamLimits()
_SYNC = StreamTarget(StreamAction.SYNC, "game", "me", 3)
_HASH = hashlib.sha256(b"state").hexdigest()


def _path(data: bytes) -> object:
    method, _, path = data.decode("latin-1").partition(" ")
    return read_path_untrusted(method, path, _LIMITS)


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
]
