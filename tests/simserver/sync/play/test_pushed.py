"""Games that are told each tick over a WebSocket, by a door at a port of this machine."""

from functools import partial

import trio

from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.stream_door import StreamDoor
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from batonpass.simserver.sync.play.session import follow_stream
from tests.simserver.ports import TrioClock
from tests.simserver.sync.lockstep.bouncers import Bouncers

THROWN = 10


class Player(Bouncers):
    """A game that keeps its ticks, and posts a few events."""

    def __init__(self, name: str) -> None:
        super().__init__(kept_ticks=10_000)
        self.follower = StreamFollower(self, "game", name)

    async def play(self, url: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(follow_stream, self.follower, url, push=True))
            for at in range(THROWN):
                self.send_event("throw", str(at))
                await trio.sleep(0.05)

    def came(self, public_id: str, type: str = "throw") -> list[str]:
        events = [event for record in self.records() for event in record.events]
        return [event.body for event in events if event.type == type and event.origin == public_id]


async def test_games_that_are_told_over_a_websocket_have_equal_hashes_and_all_events_once() -> None:
    host = PolledHost()
    door = StreamDoor(host, TrioClock())
    games = [Player("me"), Player("you")]
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(partial(door.serve, "127.0.0.1", 0))
        nursery.start_soon(host.serve)
        for game in games:
            nursery.start_soon(game.play, url)
        expected = [str(at) for at in range(THROWN)]
        for game in games:
            for other in games:
                while len(game.came(other.follower.public_id)) < THROWN:  # noqa: ASYNC110 — a server is waited for
                    await trio.sleep(0.02)
                assert game.came(other.follower.public_id) == expected
        assert door.site.websockets.counts.open == 2
        told = [follower.known for follower in (game.follower for game in games)]
        while any(game.tick < max(told) + 15 for game in games):  # noqa: ASYNC110 — as above
            await trio.sleep(0.02)
        assert door.site.websockets.counts.accepted == 2, "one for each, as long as it lasts"
        nursery.cancel_scope.cancel()
    mine, theirs = ({record.tick: record.hash for record in game.records()} for game in games)
    shared = mine.keys() & theirs.keys()
    assert len(shared) > 10
    assert {tick: mine[tick] for tick in shared} == {tick: theirs[tick] for tick in shared}


async def test_a_program_hears_of_events_before_the_game_has_them() -> None:
    host = PolledHost()
    door = StreamDoor(host, TrioClock())
    game, poster = Player("me"), Player("you")
    heard: list[int] = []

    def hear(type: str, origin: str, body: str) -> None:
        if type == "say":
            assert (origin, body in game.came(origin, "say")) == (poster.follower.public_id, False)
            heard.append(int(body))

    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(partial(door.serve, "127.0.0.1", 0))
        nursery.start_soon(host.serve)
        nursery.start_soon(partial(follow_stream, game.follower, url, push=True, on_early=hear))
        nursery.start_soon(partial(follow_stream, poster.follower, url, push=True))
        while door.site.websockets.counts.open < 2:  # noqa: ASYNC110 — a server is waited for
            await trio.sleep(0.02)
        for number in range(THROWN):
            poster.send_event("say", str(number))
            while len(game.came(poster.follower.public_id, "say")) <= number:  # noqa: ASYNC110 — as above
                await trio.sleep(0.02)
        counts = door.site.websockets.counts
        nursery.cancel_scope.cancel()
    # One that comes when a tick is due is told with it.
    assert heard == sorted(set(heard))
    assert len(heard) > THROWN // 2
    assert (counts.accepted, counts.faulty) == (2, 0)


async def test_what_is_long_or_more_than_is_taken_at_once_ends_no_websocket() -> None:
    host = PolledHost()
    door = StreamDoor(host, TrioClock())
    game = Player("me")
    posted = ["é" * 6_000, *(str(at) for at in range(40))]
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(partial(door.serve, "127.0.0.1", 0))
        nursery.start_soon(host.serve)
        nursery.start_soon(partial(follow_stream, game.follower, url, push=True))
        while not door.site.websockets.counts.open:  # noqa: ASYNC110 — a server is waited for
            await trio.sleep(0.02)
        for body in posted:
            game.send_event("say", body)
        while len(game.came(game.follower.public_id, "say")) < len(posted):  # noqa: ASYNC110 — as above
            await trio.sleep(0.02)
        counts = door.site.websockets.counts
        nursery.cancel_scope.cancel()
    assert game.came(game.follower.public_id, "say") == posted
    assert (counts.accepted, counts.faulty) == (1, 0)
