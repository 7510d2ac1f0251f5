"""Samples: transfers as they end, their latency, what servers reported, and unknown values."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

import hypothesis.strategies as st
import trio
from hypothesis import given, settings

from batonpass.actors.http.app import ApiError
from batonpass.authority.model.records import DirectoryRow, Phase, Role
from batonpass.authority.wire.placement import Load
from batonpass.homeserver.overview.samples import EVERY_S, KEPT, TIMED, CountedTicks, SampleRing
from batonpass.homeserver.placement.balancer import Reported
from batonpass.tree.member.status import Latencies
from tests.budget import examples
from tests.homeserver.overview.rows import MemberRows
from tests.homeserver.overview.test_live import on_mock_clock

SERVERS: Final = ("alpha.s1", "alpha.s2")


def report(frozen_ms: float, activated_ms: float) -> str:
    marks = [["alpha.s1", "frozen", frozen_ms * 1e6], ["alpha.s2", "activated", activated_ms * 1e6]]
    return json.dumps({"trace": {"marks": marks, "hops": []}})


class Sampled:
    """A member of which samples are taken, with what its servers say."""

    def __init__(self, **more: Any) -> None:
        self.member = MemberRows(**more)
        self.latencies = Latencies()
        self.loads = dict.fromkeys(SERVERS, 250000)
        self.skipped: dict[str, int] = dict.fromkeys(SERVERS, 7)
        self.age_s = 0.5
        node = self.member.node
        node.config = SimpleNamespace(name="alpha.h1")
        node.clock.monotonic_ns = lambda: round(trio.current_time() * 1e9)
        node.replica.status = SimpleNamespace(latency=self.latencies.summary(), applied_index=100)
        node.balancer = SimpleNamespace(report=self._report)
        node.asked = SimpleNamespace(ask=self._ask)
        for name in SERVERS:
            row = DirectoryRow(name=name, role=Role.SIMSERVER, keys={"keys": []}, rest_url="http://x", version=1)
            self.member.rows.put(("servers", name), row.to_data())
        self.ring = SampleRing(node)

    def _report(self, name: str) -> Reported:
        load = Load(tick_ppm=self.loads[name], entities=0, leaving=0, inputs_per_s=0, bytes_per_s=0)
        return Reported(load, self.age_s)

    async def _ask(self, row: DirectoryRow, path: str, form: type[CountedTicks]) -> CountedTicks:
        assert path == "/v1/local/stats"
        if row.name not in self.skipped:
            raise ApiError(502, "peer_unreachable", "it is dead")
        return form(counts={"ticks_skipped": self.skipped[row.name]})

    async def sample(self) -> dict[str, Any]:
        """Wait for the next sample, half of its time before and half after: its numbers."""
        count = self.ring.view(0, KEPT).last
        await trio.sleep(EVERY_S)
        assert self.ring.view(0, 1).last == count + 1
        view = self.ring.view(count, KEPT).model_dump()
        servers = {one.pop("name"): {key: value[-1] for key, value in one.items()} for one in view.pop("servers")}
        return {key: value[-1] if isinstance(value, list) else value for key, value in view.items()} | servers


@asynccontextmanager
async def sampled(**more: Any) -> AsyncIterator[Sampled]:
    made = Sampled(**more)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.ring.serve)
        await trio.sleep(EVERY_S / 2)
        yield made
        nursery.cancel_scope.cancel()


@on_mock_clock
async def test_transfers_are_counted_by_their_end_and_timed_by_their_report() -> None:
    async with sampled() as made:
        for number in range(10):
            made.member.transfer(f"transfer-{number}", Phase.PERMITTED)
            made.member.transfer(f"transfer-{number}", Phase.COMMITTED)
            made.member.transfer(f"transfer-{number}", Phase.DONE, report=report(100, 110 + number))
        for _ in range(2):
            made.member.transfer("transfer-x", Phase.REFUSED, reason="not done")
        seen = await made.sample()
        assert (seen["done_per_s"], seen["refused_per_s"]) == (10 / EVERY_S, 1 / EVERY_S)
        assert (seen["transfer_p50_ms"], seen["transfer_p99_ms"]) == (15, 19)
        seen = await made.sample()
        assert (seen["done_per_s"], seen["refused_per_s"], seen["transfer_p50_ms"]) == (0, 0, None)


@on_mock_clock
async def test_only_some_are_timed_and_a_report_that_says_nothing_is_none() -> None:
    async with sampled() as made:
        for number in range(TIMED + 50):
            text = report(0, 5) if number < TIMED else report(0, 5000)
            made.member.transfer(f"transfer-{number}", Phase.DONE, report=text)
        seen = await made.sample()
        assert (seen["done_per_s"], seen["transfer_p99_ms"]) == ((TIMED + 50) / EVERY_S, 5)
        for number, text in enumerate(("", "{}", '{"trace": {"marks": []}}')):
            made.member.transfer(f"odd-{number}", Phase.DONE, report=text)
        seen = await made.sample()
        assert (seen["done_per_s"], seen["transfer_p50_ms"]) == (3 / EVERY_S, None)


@on_mock_clock
async def test_what_was_not_seen_is_not_known_and_afterwards_it_is_again() -> None:
    async with sampled(max_pending_events=3) as made:
        for number in range(20):
            made.member.transfer(f"transfer-{number}", Phase.DONE)
        assert (await made.sample())["done_per_s"] is None
        seen = await made.sample()
        made.member.transfer("transfer-later", Phase.DONE)
        seen = await made.sample()
        assert seen["done_per_s"] == 1 / EVERY_S


@on_mock_clock
async def test_servers_have_their_ticks_and_null_while_they_are_silent() -> None:
    async with sampled() as made:
        await made.sample()
        made.loads["alpha.s1"] = 1_500_000
        made.skipped["alpha.s1"] += 10
        seen = [await made.sample(), await made.sample()]
        assert {each["alpha.s1"]["tick_fraction"] for each in seen} == {1.5}
        assert sorted(each["alpha.s1"]["late_ticks_per_s"] for each in seen) == [0, 10 / EVERY_S]
        assert seen[0]["alpha.s2"] == {"tick_fraction": 0.25, "late_ticks_per_s": 0}
        # It was started again.
        made.skipped["alpha.s1"] = 0
        await made.sample()
        assert (await made.sample())["alpha.s1"]["late_ticks_per_s"] == 0
        made.age_s = EVERY_S + 1
        del made.skipped["alpha.s2"]
        await made.sample()
        assert (await made.sample())["alpha.s2"] == {"tick_fraction": None, "late_ticks_per_s": None}


@on_mock_clock
async def test_the_log_has_its_rate_and_its_times() -> None:
    async with sampled() as made:
        before = await made.sample()
        assert (before["proposals_per_s"], before["proposal_p50_ms"]) == (0, None)
        for took_ms in (2, 4, 6):
            made.latencies.add(took_ms * 1_000_000)
        made.member.node.replica.status = SimpleNamespace(latency=made.latencies.summary(), applied_index=140)
        seen = await made.sample()
        assert (before["entries_per_s"], seen["entries_per_s"]) == (0, 40 / EVERY_S)
        assert (seen["proposals_per_s"], seen["proposal_p50_ms"], seen["proposal_p99_ms"]) == (3 / EVERY_S, 4, 6)


@on_mock_clock
async def test_an_hour_is_kept_and_told_in_parts() -> None:
    async with sampled() as made:
        await trio.sleep(EVERY_S * (KEPT + 10))
        whole = made.ring.view(0, KEPT)
        assert (len(whole.at_s), whole.last) == (KEPT, KEPT + 10)
        assert len(whole.model_dump_json()) < 200_000
        assert made.ring.view(whole.last, KEPT).at_s == []
        assert made.ring.view(whole.last - 3, KEPT).at_s == whole.at_s[-3:]
        assert made.ring.view(whole.last - 30, 4).at_s == whole.at_s[-4:]
        # Who was told by this server before it was started again begins anew.
        assert made.ring.view(whole.last + 1000, KEPT).at_s == whole.at_s


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from(list(Phase)), max_size=8))
def test_each_transfer_is_counted_once_whatever_its_rows_say(phases: list[Phase]) -> None:
    async def run() -> None:
        async with sampled() as made:
            for phase in phases:
                made.member.transfer("transfer-1", phase, reason="phase done refused")
            seen = await made.sample()
            over = (Phase.DONE, Phase.REFUSED)
            counted = round((seen["done_per_s"] + seen["refused_per_s"]) * EVERY_S, 3)
            assert counted == sum(later in over and earlier not in over for earlier, later in pairwise([None, *phases]))

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
