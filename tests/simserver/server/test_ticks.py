"""When a server ticks, how many ticks it skips, and what it says that they took; on a clock that only work moves."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from batonpass.actors import Ref, Server, System
from batonpass.actors.core.scheduler import SLICE_S
from batonpass.simserver.entity.feed import CommitFeed
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.server.load_report import LoadMeter

PERIOD_MS = 50
MS = 1_000_000
STEP_MS = 3
"""Longer than a slice of the run queue: each step lets everything else go on."""


class Busy(Server["Ticking"]):
    """An entity's actor, whose tick takes a while."""

    def handle_cast(self, message: Any, state: "Ticking") -> None:
        state.waiting[self.ref.pid] -= 1
        state.now_ns += STEP_MS * MS
        state.stepped += 1


class Ticking:
    """What `SimserverNode.serve_ticks` uses of a node, and the clock."""

    def __init__(self, rounds: int, *, has_lease: bool) -> None:
        self.now_ns = 7 * MS
        self.stepped = 0
        self.waiting: Counter[int] = Counter()
        self.most_waiting = 0
        self.config = SimpleNamespace(tick_hz=1000 / PERIOD_MS)
        self.clock = self
        self.counts: Counter[str] = Counter()
        self.environment = SimpleNamespace(feed=CommitFeed())
        self.ticks = 0
        self.loads = SimpleNamespace(meter=LoadMeter(PERIOD_MS * MS))
        self.refs: list[Ref] = []
        self.system: System
        self.has_lease = has_lease
        self.rounds_left = rounds
        self.over = trio.Event()

    def monotonic_ns(self) -> int:
        return self.now_ns

    async def sleep_s(self, seconds: float) -> None:
        if self.rounds_left == 0:
            self.over.set()
            await trio.sleep_forever()
        self.rounds_left -= 1
        self.now_ns += round(seconds * 1e9)
        await trio.lowlevel.checkpoint()

    def tick_all(self) -> bool:
        if not self.has_lease:
            return False
        for ref in self.refs:
            self.waiting[ref.pid] += 1
            ref.cast("tick")
        self.most_waiting = max(self.most_waiting, *self.waiting.values())
        return True

    @property
    def fraction(self) -> float:
        load = self.loads.meter.measure(self.now_ns, entities=len(self.refs), leaving=0, inputs=0, moved_bytes=0)
        return float(load.tick_ppm) / 1e6


@asynccontextmanager
async def ticked(entities: int, rounds: int, *, has_lease: bool = True) -> AsyncIterator[Ticking]:
    """A server with so many entities, after so many ticks."""
    node = Ticking(rounds, has_lease=has_lease)
    async with System.open("node", [], clock_s=lambda: node.now_ns / 1e9) as system, trio.open_nursery() as nursery:
        node.system = system
        node.refs = [await system.start(Busy, node) for _ in range(entities)]
        serve: Any = SimserverNode.serve_ticks
        await nursery.start(serve, node)
        await node.over.wait()
        yield node
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("entities", [1, 2, 5, 16])
async def test_what_a_tick_takes_is_what_all_entities_take_together(entities: int) -> None:
    assert STEP_MS / 1000 > SLICE_S
    async with ticked(entities, rounds=4) as node:
        assert node.stepped == 4 * entities
        assert node.fraction == pytest.approx(entities * STEP_MS / PERIOD_MS)
        assert (node.ticks, node.counts) == (4, {})


@pytest.mark.parametrize(("entities", "periods"), [(17, 2), (33, 2), (34, 3), (60, 4)])
async def test_no_tick_begins_before_all_had_the_last_one_and_those_due_meanwhile_are_skipped(
    entities: int, periods: int
) -> None:
    """Else they would wait in the mailboxes, more and more of them, and the server would answer ever later."""
    async with ticked(entities, rounds=5) as node:
        assert node.most_waiting == 1
        assert node.fraction == pytest.approx(entities * STEP_MS / PERIOD_MS)
        assert node.counts["ticks_skipped"] == 4 * (periods - 1)


async def test_a_server_without_a_lease_has_no_load_and_skips_nothing() -> None:
    async with ticked(40, rounds=3, has_lease=False) as node:
        assert (node.fraction, node.stepped, node.ticks, node.counts) == (0, 0, 3, {})


async def test_a_server_whose_tick_takes_longer_than_a_report_says_so_meanwhile() -> None:
    """Else it is taken for as cool as it was before, for as long as that takes; and gets more."""
    node = Ticking(1, has_lease=True)
    async with System.open("node", [], clock_s=lambda: node.now_ns / 1e9) as system, trio.open_nursery() as nursery:
        node.system = system
        node.refs = [await system.start(Busy, node) for _ in range(1000)]
        serve: Any = SimserverNode.serve_ticks
        await nursery.start(serve, node)
        while node.stepped < 700:
            await trio.lowlevel.checkpoint()
        assert node.stepped < 1000
        assert node.fraction > 1
        nursery.cancel_scope.cancel()
