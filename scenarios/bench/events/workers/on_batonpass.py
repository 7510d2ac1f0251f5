"""batonpass: a door to streams that its process has itself, one to streams of a cluster's entities, and how long
joining an old stream takes.
"""

import base64
import json
import sys
import time
from typing import Any, Final

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.actors.base.clock import Clock
from batonpass.scenarios.bench.events.course import JOIN_TICKS
from batonpass.scenarios.bench.events.workers.on_cluster import hosted_streams
from batonpass.scenarios.bench.events.workers.stream_load import loaded, served_by
from batonpass.scenarios.bench.loops import arguments, expect, tell_all
from batonpass.scenarios.lockstep.game import TALLIED, WatchedGame
from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.stream_door import StreamDoor
from batonpass.simserver.sync.events.json_form import (
    StreamAction,
    read_path_untrusted,
    read_request_untrusted,
    read_snapshot_untrusted,
    write_reply,
    write_snapshot,
)
from batonpass.simserver.sync.events.limits import TICK_MS
from batonpass.simserver.sync.events.polled import PolledStreams
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.snapshots import signed_text
from batonpass.simserver.sync.lockstep.follower import StreamFollower

__all__ = ["main"]

MODULE: Final = "batonpass.scenarios.bench.events.workers.on_batonpass"
TICK_NS: Final = TICK_MS * 1_000_000


async def serve(port: int) -> None:
    """Serve until killed."""
    host = PolledHost()
    async with trio.open_nursery() as nursery:
        await nursery.start(host.serve)
        await nursery.start(StreamDoor(host, Clock()).serve, "127.0.0.1", port)


class _OldStream:
    """A stream of an hour, with an event each half second by two clients, and how one joins it."""

    def __init__(self) -> None:
        self._streams: Final = PolledStreams(lambda: "0123456789abcdef" * 2)
        self._now_ns = 0
        known = 0
        for number in range(1, JOIN_TICKS // 10 + 1):
            event = {"Type": TALLIED, "Body": f"event {number}", "Id": number}
            known = self._posted("ada", known, {"Events": [event]})["T"]
            self._posted("bob", known, {})
            self._now_ns += 10 * TICK_NS
        self.tick: int = self._posted("ada", known, {})["T"]

    def join(self, *, by_snapshot: bool) -> tuple[float, WatchedGame]:
        """Milliseconds until a client has computed the present tick, and its game."""
        game = WatchedGame()
        follower = StreamFollower(game, "game", f"late {by_snapshot}", join_by_snapshot=by_snapshot)
        began_s = time.perf_counter()
        while game.tick < self.tick:
            request = follower.next_request()
            try:
                follower.take_answer(request, self._ask(request.method, request.path, request.body))
            except StreamRefusal as refusal:
                follower.take_refusal(request, refusal.status, 0.0)
            while follower.run(1e9, most=1000):
                pass
        return (time.perf_counter() - began_s) * 1e3, game

    def trust(self, game: WatchedGame) -> None:
        """Have a snapshot of the present tick, which both clients vote for."""
        key, state_hash = Ed25519PrivateKey.from_private_bytes(bytes(32)), game.state_hash()
        for client in ("ada", "bob"):
            self._posted(client, self.tick, {"Hashes": [[self.tick, state_hash]]})
        incarnation = "0123456789abcdef" * 2
        offer = {
            "Incarnation": incarnation,
            "State": base64.b64encode(game.snapshot()).decode(),
            "Hash": state_hash,
            "Key": base64.b64encode(key.public_key().public_bytes_raw()).decode(),
            "Signature": base64.b64encode(key.sign(signed_text(incarnation, self.tick, state_hash))).decode(),
        }
        self._ask("PUT", f"/game/ada/snapshot/{self.tick}", offer)

    def _posted(self, client: str, known: int, body: dict[str, Any]) -> Any:
        return self._ask("POST", f"/game/{client}/{known}", body)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        """What a door does with these, but for HTTP."""
        streams, limits = self._streams, self._streams.limits
        target = read_path_untrusted(method, path, limits)
        data = b"" if body is None else json.dumps(body).encode()
        if target.action is StreamAction.SYNC:
            request = read_request_untrusted(target, data, limits)
            return json.loads(write_reply(streams.request(target.stream, request, self._now_ns)))
        stream = streams.find(target.stream, self._now_ns)
        if target.action is StreamAction.PUT_SNAPSHOT:
            stream.offer_snapshot(target.private_id, read_snapshot_untrusted(target, data, limits))
        if stream.snapshot is None:
            raise StreamRefusal(RefusalCode.NO_SNAPSHOT, "no snapshot is trusted yet: begin with last known tick 0")
        return json.loads(write_snapshot(stream.incarnation, stream.snapshot))


def measure_join() -> dict[str, float]:
    """How long it takes until a client has computed tick 72,000, in milliseconds."""
    stream = _OldStream()
    replay_ms, game = stream.join(by_snapshot=False)
    stream.trust(game)
    snapshot_ms, other = stream.join(by_snapshot=True)
    expect(len(other.restored), 1)
    expect((other.tick, other.state_hash()), (game.tick, game.state_hash()))
    return {"replay": replay_ms, "snapshot": snapshot_ms}


def main() -> None:
    """As `side_by_side` asks."""
    if sys.argv[1] == "serve":
        trio.run(serve, int(sys.argv[2]))
    work, seconds = arguments("batonpass")
    kind, _, shape = work.partition("-")
    match kind:
        case "join":
            tell_all(measure_join())
        case "hosted":
            tell_all(loaded(work, seconds, hosted_streams(int(shape.partition("x")[0]))))
        case _:
            tell_all(loaded(work, seconds, served_by((sys.executable, "-m", MODULE, "serve"))))


if __name__ == "__main__":
    main()
