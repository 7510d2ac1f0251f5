"""What the old authority owes its home instance: for how long it tells it, and which report is never given up."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Decline, Report, ReportReply
from batonpass.simserver.durability.retained_states import HANDED_OVER_NS
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.transfer.source import reports
from batonpass.simserver.transfer.source.reports import TRIES, Reports
from tests.simserver.ports import TrioClock

BALL, HERE = "alpha.ball-1", "alpha.s1"
MINUTES_S, HOURS_S = 300.0, 5 * 3600.0


def report(transfer_id: str, entity: str = BALL, *, passed: bool = False) -> Report:
    chain = ["grant", transfer_id] if passed else []
    return Report(
        transfer_id=transfer_id,
        entity=entity,
        source=HERE,
        trace=Trace(transfer_id),
        off_path={},
        counters={},
        chain=chain,
    )


class Debtor:
    """A server that owes reports, and its home, which says nothing while it is `away`."""

    def __init__(self) -> None:
        self.away = True
        self.refuses = False
        self.heard: list[str] = []
        self.asked: Counter[str] = Counter()
        self.decided: list[str] = []
        self.counts: Counter[str] = Counter()
        self.still_at_s, self.longest_s = trio.current_time(), 0.0
        """When it was said last that a pass is untold still, and the longest time in which it was not."""
        self.nursery: trio.Nursery | None = None
        home: Any = self
        self.reports = Reports(home, TrioClock(), self.counts, self.spawn, self.decided.append, self.still)

    def spawn(self, function: Callable[..., Awaitable[None]], *args: Any) -> bool:
        assert self.nursery is not None
        self.nursery.start_soon(function, *args)
        return True

    def still(self, entity: str) -> None:
        self.longest_s = max(self.longest_s, trio.current_time() - self.still_at_s)
        self.still_at_s = trio.current_time()

    async def ask_each(self, letters: Sequence[Letter]) -> list[OpenedMessage | Exception | None]:
        self.asked.update(letter.message.transfer_id for letter in letters)
        if self.refuses:
            return [HomeRefused("no")] * len(letters)
        if self.away:
            return [HomeUnreachable("nobody")] * len(letters)
        names = [letter.trace.transfer_id for letter in letters]
        self.heard += names
        return [OpenedMessage(ReportReply(transfer_id=name), "alpha.h1", Trace(name)) for name in names]

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as self.nursery:
            yield
            self.nursery.cancel_scope.cancel()


async def test_what_home_does_not_hear_is_given_up_but_for_the_pass_that_no_other_server_may_know_of(
    autojump_clock: MockClock,
) -> None:
    debtor = Debtor()
    decline = Decline(transfer_id="transfer-declined", entity=BALL, source=HERE, target="alpha.s2", reason="capacity")
    async with debtor.served():
        debtor.reports.tell(report("transfer-committed"))
        debtor.reports.tell(decline)
        debtor.reports.tell(report("transfer-passed", "alpha.ball-2", passed=True))
        await trio.sleep(HOURS_S)
        assert list(debtor.reports) == ["transfer-passed"]
        assert (debtor.asked["transfer-committed"], debtor.asked["transfer-declined"]) == (TRIES, TRIES)
        assert debtor.longest_s * 1e9 < HANDED_OVER_NS, "its state was let go meanwhile"
        debtor.away = False
        await trio.sleep(60.0)
    assert (debtor.heard, debtor.decided, list(debtor.reports)) == (["transfer-passed"], ["transfer-passed"], [])


async def test_of_an_entity_that_was_passed_several_times_the_last_chain_is_told(autojump_clock: MockClock) -> None:
    """It has the passes before it."""
    debtor = Debtor()
    async with debtor.served():
        for name in ("transfer-first", "transfer-second", "transfer-third"):
            debtor.reports.tell(report(name, passed=True))
        await trio.sleep(MINUTES_S)
        assert list(debtor.reports) == ["transfer-third"]


async def test_a_pass_of_which_home_will_not_hear_is_owed_no_longer(autojump_clock: MockClock) -> None:
    debtor = Debtor()
    debtor.refuses = True
    async with debtor.served():
        debtor.reports.tell(report("transfer-passed", passed=True))
        await trio.sleep(MINUTES_S)
    assert (list(debtor.reports), debtor.asked["transfer-passed"], debtor.counts["report_refused"]) == ([], 1, 1)


async def test_no_more_passes_are_owed_than_a_table_holds(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MAX_PASSES", 2)
    debtor = Debtor()
    async with debtor.served():
        for number in range(4):
            debtor.reports.tell(report(f"transfer-{number}", f"alpha.ball-{number}", passed=True))
        await trio.sleep(MINUTES_S)
        assert list(debtor.reports) == ["transfer-2", "transfer-3"]
    assert debtor.counts["report_given_up"] == 2
