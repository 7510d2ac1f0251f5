"""A client that comes late joins by a snapshot: what that costs is the same however old the stream is."""

import base64
import json
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.simserver.sync.events.json_form import read_path_untrusted
from batonpass.simserver.sync.events.polled import PolledStreams
from batonpass.simserver.sync.events.snapshots import signed_text
from batonpass.simserver.sync.lockstep.canonical import decode_untrusted_state, encode, state_hash
from batonpass.simserver.sync.lockstep.driver import SimEvent
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from tests.simserver.sync.events.answers import answer
from tests.simserver.sync.lockstep.bouncers import Bouncers

INCARNATION: Final = "0123456789abcdef" * 2
PLAYERS: Final = ("ada", "bob")
BALLS: Final = 40
SINCE_TICKS: Final = 20
"""From the snapshot until a client comes."""


class OldStream:
    """A stream with an event every two seconds, and a trusted snapshot; `ask` is its door, and counts its answers."""

    def __init__(self, ticks: int) -> None:
        self.streams = PolledStreams(lambda: INCARNATION)
        self.now_ns = 0
        self.bytes_told = 0
        known = 0
        for number in range(1, ticks // 40 + 1):
            event = {"Type": "throw", "Body": str(number), "Id": number}
            known = self.ask("POST", f"/game/ada/{known}", {"Events": [event]})["T"]
            self.ask("POST", f"/game/bob/{known}", {})
            self.now_ns += 40 * 50_000_000
        self.tick = self.ask("POST", f"/game/ada/{known}", {})["T"]
        self.state = self.aged(self.tick)
        for one in PLAYERS:
            self.ask("POST", f"/game/{one}/{self.tick}", {"Hashes": [[self.tick, state_hash(self.state)]]})
        for one in PLAYERS:
            self.ask("PUT", f"/game/{one}/snapshot/{self.tick}", self.offer())
        self.now_ns += SINCE_TICKS * 50_000_000
        self.bytes_told = 0

    @staticmethod
    def aged(tick: int) -> bytes:
        """A state at this tick, without computing all ticks before it."""
        game = Bouncers()
        thrown = (SimEvent(1, "throw", "1", str(number)) for number in range(BALLS))
        game.step([SimEvent(1, "_a", "_", INCARNATION), SimEvent(1, "_c", "_", "1"), *thrown])
        return encode({**decode_untrusted_state(game.snapshot()), "Tick": tick})

    def offer(self) -> dict[str, str]:
        key = Ed25519PrivateKey.from_private_bytes(bytes(32))
        signature = key.sign(signed_text(INCARNATION, self.tick, state_hash(self.state)))
        parts = {"State": self.state, "Key": key.public_key().public_bytes_raw(), "Signature": signature}
        coded = {name: base64.b64encode(part).decode() for name, part in parts.items()}
        return {"Incarnation": INCARNATION, "Hash": state_hash(self.state), **coded}

    def ask(self, method: str, path: str, body: Any) -> Any:
        target = read_path_untrusted(method, path, self.streams.limits)
        told = answer(self.streams, target, b"" if body is None else json.dumps(body).encode(), self.now_ns)
        self.bytes_told += len(told.encode())
        return json.loads(told)


@pytest.mark.parametrize("ticks", [1_200, 72_000])
def test_a_late_joiner_is_told_at_most_twice_the_bytes_of_the_snapshot_and_computes_what_came_since(ticks: int) -> None:
    stream, game = OldStream(ticks), Bouncers()
    follower = StreamFollower(game, "game", "late")
    computed = 0
    while game.tick < stream.tick + SINCE_TICKS:
        request = follower.next_request()
        follower.take_answer(request, stream.ask(request.method, request.path, request.body))
        while ran := follower.run(1e9):
            computed += ran
    assert stream.bytes_told <= 2 * len(stream.state)
    assert computed == SINCE_TICKS
