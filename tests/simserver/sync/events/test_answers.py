"""Every path of an event stream, as bytes in and JSON out."""

import base64
import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.simserver.sync.events.json_form import read_path_untrusted
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.polled import PolledStreams
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.snapshots import signed_text
from tests.simserver.sync.events.answers import answer
from tests.simserver.sync.events.game import ONE

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
STATE = b"a state"
HASH = hashlib.sha256(STATE).hexdigest()


class Server:
    """A server of streams that is asked every 100 ms."""

    def __init__(self, **limits: Any) -> None:
        self.streams = PolledStreams(lambda: ONE, StreamLimits(**limits))
        self.now_ms = 0

    def ask(self, method: str, path: str, body: object = None) -> Any:
        self.now_ms += 100
        text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
        target = read_path_untrusted(method, path, self.streams.limits)
        return json.loads(answer(self.streams, target, text.encode(), self.now_ms * 1_000_000))

    def refused(self, method: str, path: str, body: object = None) -> RefusalCode:
        with pytest.raises(StreamRefusal) as caught:
            self.ask(method, path, body)
        return caught.value.code

    def playing(self) -> "Server":
        """Two clients that both have tick 4."""
        for path in ("/game/a/0", "/game/b/0", "/game/a/0", "/game/b/0"):
            self.ask("POST", path)
        return self


def offered() -> dict[str, str]:
    fields = {
        "State": STATE,
        "Key": KEY.public_key().public_bytes_raw(),
        "Signature": KEY.sign(signed_text(ONE, 3, HASH)),
    }
    return {name: base64.b64encode(value).decode() for name, value in fields.items()} | {
        "Incarnation": ONE,
        "Hash": HASH,
    }


def test_a_client_plays_and_leaves() -> None:
    server = Server().playing()
    reply = server.ask("POST", "/game/a/4", {"Incarnation": ONE, "Events": [{"Type": "move", "Body": "x", "Id": 1}]})
    assert (reply["T"], reply["ProxyId"], reply["Acked"]) == (8, "1", 1)
    assert server.ask("DELETE", "/game/a")["ProxyId"] == "1"
    assert [event["Type"] for event in server.ask("GET", "/game/b/4")["Events"]] == ["move", "_d"]


def test_e6_one_bad_request_affects_nobody() -> None:
    server = Server().playing()
    before = server.streams.find("game", server.now_ms * 1_000_000).as_data()
    for path, body in [
        ("/game/a/4", "not json"),
        ("/game/a/4", {"Events": [{"Type": "_d", "Body": "2"}]}),
        ("/game/a/4", {"Events": [{"Type": "move"}] * 21}),
        ("/game/a/4", "x" * 20_000),
        ("/game", "{}"),
        ("/game/a/99999999999999999999", "{}"),
    ]:
        server.refused("POST", path, body)
        server.now_ms -= 100
    after = server.streams.find("game", server.now_ms * 1_000_000).as_data()
    assert after == before | {"tick": after["tick"], "now_ms": after["now_ms"]}
    assert server.ask("POST", "/game/b/4")["Events"] == []


def test_a_snapshot_is_offered_and_fetched() -> None:
    server = Server().playing()
    assert server.refused("GET", "/game/snapshot") is RefusalCode.NO_SNAPSHOT
    assert server.refused("PUT", "/game/a/snapshot/3", offered()) is RefusalCode.NO_QUORUM
    for me in "ab":
        server.ask("POST", f"/game/{me}/4", {"Incarnation": ONE, "Hashes": [[3, HASH]]})
    assert server.ask("PUT", "/game/a/snapshot/3", offered()) == {}
    told = server.ask("GET", "/game/snapshot")
    assert (told["T"], base64.b64decode(told["State"]), len(told["Votes"])) == (3, STATE, 2)
    assert server.ask("POST", "/game/c/3", {"Incarnation": ONE})["Snapshot"] == 3


def test_a_desync_is_found_and_both_sides_are_fetched() -> None:
    server = Server().playing()
    assert server.refused("GET", "/game/desync") is RefusalCode.NO_DESYNC
    server.ask("POST", "/game/a/4", {"Hashes": [[3, HASH]]})
    assert server.ask("POST", "/game/b/4", {"Hashes": [[3, "0" * 64]]})["Desync"]["T"] == 3
    server.ask("PUT", "/game/a/desync/3", "mine")
    assert server.ask("PUT", "/game/b/desync/3", "and mine") == {}
    told = server.ask("GET", "/game/desync")
    assert [row["Dump"] for row in told["Dumps"]] == ["and mine", "mine"]
    server = Server(max_dump_bytes=3).playing()
    assert server.refused("PUT", "/game/a/desync/3", "long") is RefusalCode.BODY_TOO_LARGE


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/no/me"), ("GET", "/no/snapshot"), ("GET", "/no/desync"), ("PUT", "/no/me/desync/1")],
)
def test_only_a_request_of_a_client_begins_a_stream(method: str, path: str) -> None:
    server = Server()
    assert server.refused(method, path) is RefusalCode.UNKNOWN_STREAM
    assert len(server.streams) == 0
