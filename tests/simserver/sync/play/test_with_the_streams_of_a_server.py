"""Games over HTTP and a server's streams, without a network: votes, snapshots for late joiners, desync reports."""

import hashlib
import json
from functools import partial
from itertools import count
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.actors.http.client import HttpClient
from batonpass.simserver.sync.events.json_form import read_path_untrusted, write_refusal
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.polled import PolledStreams
from batonpass.simserver.sync.events.refusals import StreamRefusal
from batonpass.simserver.sync.lockstep.desync import explain
from batonpass.simserver.sync.lockstep.driver import SimDriver
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from batonpass.simserver.sync.play.session import follow_stream
from tests.simserver.sync.events.answers import answer
from tests.simserver.sync.lockstep.bouncers import Board, Bouncers


class StreamServer:
    """The streams of a server, asked over HTTP in memory; `restart` loses them."""

    def __init__(self, **limits: Any) -> None:
        self._limits = StreamLimits(**limits)
        self._lives = count(1)
        self.restart()

    def restart(self) -> None:
        life = next(self._lives)
        numbers = count(1)
        self.streams = PolledStreams(
            lambda: hashlib.sha256(f"{life} {next(numbers)}".encode()).hexdigest()[:32], self._limits
        )

    async def answer(self, request: httpx.Request) -> httpx.Response:
        await trio.sleep(0.01)
        now_ns = round(trio.current_time() * 1e9)
        try:
            target = read_path_untrusted(request.method, request.url.raw_path.decode(), self._limits)
            return httpx.Response(200, text=answer(self.streams, target, request.content, now_ns))
        except StreamRefusal as refusal:
            return httpx.Response(refusal.status, text=write_refusal(refusal))


def signing(name: str) -> Any:
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
    return lambda text: (key.public_key().public_bytes_raw(), key.sign(text))


class CheatedOnce(Bouncers):
    """Draws once more than the others at tick 150."""

    def on_tick(self, tick: int) -> None:
        super().on_tick(tick)
        if tick == 150:
            self.entities(Board)[0].best = str(self.get_random().below(100))


def following(nursery: trio.Nursery, http: HttpClient, name: str, driver: SimDriver) -> StreamFollower:
    follower = StreamFollower(driver, "game", name, sign=signing(name), offer_every=40)
    nursery.start_soon(partial(follow_stream, follower, "http://x", http=http))
    return follower


@pytest.fixture
async def http(server: StreamServer) -> Any:
    async with HttpClient(transport=httpx.MockTransport(server.answer)) as client:
        yield client


@pytest.fixture
def server() -> StreamServer:
    return StreamServer(keep_history=False)


async def test_a_late_joiner_begins_from_a_snapshot_that_the_others_agreed_on_and_signed(
    server: StreamServer, http: HttpClient, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        early = [following(nursery, http, name, Bouncers(kept_ticks=1000)) for name in ("ada", "bob")]
        for _ in range(20):
            await trio.sleep(0.5)
            early[0].driver.send_event("throw", "100")
        late = following(nursery, http, "cy", Bouncers(kept_ticks=1000))
        await trio.sleep(4.0)
        nursery.cancel_scope.cancel()
    snapshot = json.loads((await server.answer(httpx.Request("GET", "http://x/game/snapshot"))).text)
    assert snapshot["T"] % 40 == 0
    assert all(vote["Signature"] for vote in snapshot["Votes"][:2])
    known = {record.tick: record.hash for record in early[0].driver.records()}
    joined = [record.tick for record in late.driver.records()]
    assert joined[0] >= 120, "none of the history was needed, and the server has dropped it"
    assert len(joined) > 40
    for record in (*early[1].driver.records(), *late.driver.records()):
        assert known.get(record.tick, record.hash) == record.hash


@pytest.mark.parametrize("server", [StreamServer(max_events=60, keep_history=False)])
async def test_a_client_that_is_alone_plays_on_however_many_events_it_posts_and_another_one_can_join_it(
    server: StreamServer, http: HttpClient, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        alone = following(nursery, http, "ada", Bouncers(kept_ticks=1000))
        for number in range(200):
            alone.driver.send_event("throw", str(number % 1024))
            await trio.sleep(0.2)
        late = following(nursery, http, "bob", Bouncers(kept_ticks=1000))
        await trio.sleep(4.0)
        nursery.cancel_scope.cancel()
    assert alone.unacknowledged == 0
    snapshot = server.streams.find("game", round(trio.current_time() * 1e9)).snapshot
    assert snapshot is not None
    known = {record.tick: record.hash for record in alone.driver.records()}
    joined = {record.tick: record.hash for record in late.driver.records()}
    assert min(joined) > 100, "the history was dropped before the snapshot of a client that was alone"
    assert len(joined.keys() & known.keys()) > 40
    assert all(known.get(tick, state_hash) == state_hash for tick, state_hash in joined.items())


async def test_a_client_that_diverges_is_found_out_and_both_dumps_name_field_and_draw(
    http: HttpClient, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        for name, driver in (("ada", Bouncers), ("bob", Bouncers), ("eve", CheatedOnce)):
            following(nursery, http, name, driver(trace=True))
        await trio.sleep(12.0)
        shown = (await http.request("GET", "http://x/game/desync")).json()
        nursery.cancel_scope.cancel()
    assert shown["T"] == 151
    dumps = [row["Dump"] for row in shown["Dumps"]]
    assert len(dumps) == 2
    report = explain(*dumps)
    assert report is not None
    assert report.tick == 151
    assert ("Board", "best") in [(one.kind, one.path) for one in report.differences]
    assert report.act is not None
    assert any(act is not None and act.of == "below(100)" and "on_tick" in act.site for act in report.act[1:])


async def test_clients_of_a_server_that_was_restarted_begin_anew_together(
    server: StreamServer, http: HttpClient, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        both = [following(nursery, http, name, Bouncers()) for name in ("ada", "bob")]
        await trio.sleep(5.0)
        before = both[0].incarnation
        server.restart()
        both[0].driver.send_event("throw", "100")
        await trio.sleep(5.0)
        nursery.cancel_scope.cancel()
    one, other = ({record.tick: record.hash for record in follower.driver.records()} for follower in both)
    assert both[0].incarnation == both[1].incarnation != before
    assert 60 < max(one) < 110
    assert len(set(one) & set(other)) > 60
    assert all(one[tick] == other[tick] for tick in set(one) & set(other))
    assert both[0].unacknowledged == 0
