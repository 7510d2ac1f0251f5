"""What those who look on are told: once for all of them, bounded, and nothing while nobody does."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import given, settings
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.actors.http.app import ApiError
from batonpass.authority.model.records import Phase
from batonpass.homeserver.overview import live
from batonpass.homeserver.overview.cluster_map import HealthState, MappedServer, MapView
from batonpass.homeserver.overview.live import FIGURES_S, HEARTBEAT_S, LOOK_S, MAX_LOOKERS, LiveOverview, Recent
from tests.budget import examples
from tests.homeserver.overview.rows import MemberRows

NOTHING = ": nothing new"


def shown(health: HealthState = HealthState.OK, entities: int = 0) -> MapView:
    figures: dict[str, Any] = dict.fromkeys(
        ("incarnation", "leaving", "asleep", "not_running", "inputs_per_s", "bytes_per_s"), 0
    )
    server = MappedServer(
        name="alpha.s1",
        health=health,
        why="",
        rest_url="",
        lease=None,
        draining=False,
        entities=entities,
        tick_fraction=0.0,
        **figures,
    )
    return MapView(
        instance="alpha",
        told_by="alpha.h1",
        health=health,
        why="",
        leader="alpha.h1",
        term=1,
        entities=entities,
        log_went_back="",
        recovering=0,
        members=[],
        servers=[server],
        others=[],
    )


class Screen:
    """A member and its map, which a test sets, with the time of a mock clock."""

    def __init__(self, **more: Any) -> None:
        self.member = MemberRows(**more)
        self.map = shown()
        self.looks = 0
        clock = self.member.node.clock
        clock.monotonic_ns = lambda: round(trio.current_time() * 1e9)
        self.live = LiveOverview(self.member.node)

    def look(self, _: object) -> MapView:
        self.looks += 1
        return self.map


@asynccontextmanager
async def screen(**more: Any) -> AsyncIterator[Screen]:
    made = Screen(**more)
    with patch.object(live, "map_of", made.look):
        async with trio.open_nursery() as nursery:
            await nursery.start(made.live.serve)
            yield made
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def looking(made: Screen) -> AsyncIterator[AsyncIterator[bytes]]:
    """The stream of somebody who looks on, which begins with the map."""
    pieces, looker = made.live.join()
    try:
        async with aclosing(pieces):  # type: ignore[type-var]  # it is a generator
            yield pieces
    finally:
        made.live.leave(looker)


def on_mock_clock(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        trio.run(test, clock=MockClock(autojump_threshold=0))

    run.__name__ = test.__name__
    return run


async def told(pieces: AsyncIterator[bytes]) -> tuple[str, Any]:
    """The next event; a comment is of the kind `:`."""
    piece = (await anext(pieces)).decode()
    lines = dict(line.partition(": ")[::2] for line in piece.splitlines() if not line.startswith(":"))
    return (lines["event"], json.loads(lines["data"])) if "event" in lines else (":", piece.strip())


@on_mock_clock
async def test_a_stream_begins_with_the_map_and_tells_what_changes() -> None:
    async with screen() as made, looking(made) as pieces:
        assert await told(pieces) == ("map", json.loads(made.map.model_dump_json()))
        await wait_all_tasks_blocked()
        made.member.entity("alpha.ball")
        made.member.transfer("transfer-1", Phase.PERMITTED, entity="alpha.ball")
        made.member.transfer("transfer-1", Phase.COMMITTED, entity="alpha.ball")
        assert await told(pieces) == ("entities", {"entities": ["alpha.ball"], "more": 0})
        kind, data = await told(pieces)
        (row,) = data["transfers"]
        assert (kind, data["more"], row["transfer_id"], row["phase"]) == ("transfers", 0, "transfer-1", "committed")
        made.map = shown(HealthState.DOWN)
        began = trio.current_time()
        assert (await told(pieces))[1]["servers"][0]["health"] == "down"
        assert trio.current_time() - began <= LOOK_S


@on_mock_clock
async def test_figures_alone_are_told_once_a_second() -> None:
    async with screen() as made, looking(made) as pieces:
        await told(pieces)
        times = []
        for count in range(1, 4):
            made.map = shown(entities=count)
            assert (await told(pieces))[1]["entities"] == count
            times.append(trio.current_time())
        assert all(later - earlier >= FIGURES_S for earlier, later in pairwise(times))


@on_mock_clock
async def test_a_quiet_instance_is_heard_of_all_the_same() -> None:
    async with screen() as made, looking(made) as pieces:
        await told(pieces)
        began = trio.current_time()
        assert await told(pieces) == (":", NOTHING)
        assert trio.current_time() - began == pytest.approx(HEARTBEAT_S)


@on_mock_clock
async def test_nothing_is_followed_while_nobody_looks_on() -> None:
    async with screen() as made:
        await trio.sleep(60)
        assert (made.looks, made.member.watches) == (0, [])
        async with looking(made) as pieces:
            await told(pieces)
            await trio.sleep(1)
            assert len(made.member.watches) == 2
        await trio.sleep(1)
        looks = made.looks
        await trio.sleep(60)
        assert made.looks == looks
        assert made.member.history.watcher_count == 0


@on_mock_clock
async def test_twenty_who_look_on_cost_as_much_as_one() -> None:
    async with screen() as made, AsyncExitStack() as stack:
        lookers = [await stack.enter_async_context(looking(made)) for _ in range(20)]
        for pieces in lookers:
            await told(pieces)
        before = made.looks
        await trio.sleep(10)
        assert made.looks - before <= 10 / LOOK_S + 1
        made.member.entity("alpha.ball")
        assert {(await told(pieces))[0] for pieces in lookers} == {"entities"}


@on_mock_clock
async def test_who_does_not_take_what_is_told_is_sent_away_and_no_other() -> None:
    async with screen() as made, looking(made) as slow, looking(made) as quick:
        await told(quick)
        await wait_all_tasks_blocked()
        for number in range(100):
            made.member.entity(f"alpha.ball-{number}")
            assert await told(quick) == ("entities", {"entities": [f"alpha.ball-{number}"], "more": 0})
        # How it stands when it begins to take, what was kept for it, and the end.
        assert (await told(slow))[0] == "map"
        kept = [piece async for piece in slow]
        assert 1 < len(kept) < 100


@on_mock_clock
async def test_more_at_once_than_is_kept_has_everything_read_anew() -> None:
    async with screen(max_pending_events=4) as made, looking(made) as pieces:
        await told(pieces)
        await wait_all_tasks_blocked()
        for number in range(50):
            made.member.entity(f"alpha.ball-{number}")
        assert await told(pieces) == ("reset", {})
        assert (await told(pieces))[0] == "map"
        await wait_all_tasks_blocked()
        made.member.entity("alpha.ball-7", owner="alpha.bob")
        assert await told(pieces) == ("entities", {"entities": ["alpha.ball-7"], "more": 0})


@on_mock_clock
async def test_there_is_room_for_so_many_and_again_when_one_has_gone() -> None:
    async with screen() as made, AsyncExitStack() as stack:
        for _ in range(MAX_LOOKERS - 1):
            await stack.enter_async_context(looking(made))
        async with looking(made):
            with pytest.raises(ApiError) as refused:
                made.live.join()
            assert (refused.value.status, refused.value.code) == (503, "too_many_lookers")
        async with looking(made):
            with pytest.raises(ApiError):
                made.live.join()


@given(st.lists(st.integers(0, 9)), st.integers(1, 4))
@settings(max_examples=examples(100))
def test_the_last_changes_are_kept_each_name_once(changes: list[int], at_most: int) -> None:
    recent: Recent[int] = Recent(at_most)
    for at, name in enumerate(changes):
        recent.add(str(name), at)
    last = {str(name): at for at, name in enumerate(changes)}
    kept, more = recent.take()
    assert kept == dict(sorted(last.items(), key=lambda item: item[1])[-at_most:])
    assert more >= len(last) - len(kept)
    assert recent.take() == ({}, 0)
