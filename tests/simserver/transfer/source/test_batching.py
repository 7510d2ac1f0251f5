"""Who waits leaves in company, and never waits for good beside a free place."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.simserver.transfer.source.batching import GATHER_S, DepartureBatching
from batonpass.simserver.transfer.source.concurrency import ConcurrencyLimit
from batonpass.simserver.transfer.source.departure import DeparturePlan
from tests.simserver.ports import TrioClock

PLACES = 8


class Scene:
    """Convoys over a turnstile of a few places, as `Departures` uses them."""

    def __init__(self) -> None:
        self.nursery: trio.Nursery | None = None
        self.batching = DepartureBatching(TrioClock(), self.spawn, self.begin, ConcurrencyLimit(PLACES))
        self.began: list[list[str]] = [[]]

    def spawn(self, function: Any, *args: Any) -> bool:
        if self.nursery is not None:
            self.nursery.start_soon(function, *args)
        return self.nursery is not None

    def begin(self, plan: DeparturePlan) -> None:
        if self.batching.concurrency_limit.enter(plan, 300):
            self.began[-1].append(plan.entity)
        else:
            self.batching.concurrency_limit.wait(plan)

    def wants_to_go(self, *entities: str) -> None:
        for entity in entities:
            self.begin(DeparturePlan(f"transfer-{entity}", entity, "alpha.s2"))

    def arrives(self, *entities: str) -> None:
        for entity in entities:
            self.batching.concurrency_limit.leave(entity)
            self.batching.place_free("alpha.s2")
        self.began.append([])

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as self.nursery:
            self.batching.go_on()
            yield
            self.nursery.cancel_scope.cancel()
        self.nursery = None


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_places_are_kept_until_half_of_them_are_free(
    scene: Scene, autojump_clock: trio.testing.MockClock
) -> None:
    async with scene.served():
        scene.wants_to_go(*"abcdefgh", *"ijklmnop")
        assert scene.began == [list("abcdefgh")]
        scene.arrives(*"abc")
        assert scene.began[0] == list("abcdefgh")
        scene.arrives("d")
        assert scene.began[1] == list("ijkl")


async def test_nobody_waits_for_company_that_does_not_come(
    scene: Scene, autojump_clock: trio.testing.MockClock
) -> None:
    async with scene.served():
        scene.wants_to_go(*"abcdefgh", *"ijk")
        scene.arrives("a")
        await trio.sleep(GATHER_S / 2)
        assert scene.began[1] == []
        await trio.sleep(GATHER_S)
        assert scene.began[1] == ["i"], "those under way may take for ever"
        scene.arrives("b", "c")
        assert scene.began[1] == ["i", "j", "k"], "there is a place for all who wait"


async def test_whoever_kept_the_time_may_end(scene: Scene, autojump_clock: trio.testing.MockClock) -> None:
    async with scene.served():
        scene.wants_to_go(*"abcdefgh", *"ij")
        scene.arrives("a")
    assert scene.began[1] == []
    async with scene.served():
        assert scene.began[1] == ["i"]
    scene.arrives("b")
    assert scene.began[1] == ["i", "j"], "nobody could keep the time"
