"""What a server says of its load: averages and rates of what happened since it last said so; and who is counted."""

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import UNTOLD, Ownership
from batonpass.authority.placement.limits import PlacementLimits
from batonpass.authority.placement.policy import Balance, Resident, ServerLoad, View, relieve
from batonpass.authority.wire.placement import (
    MAX_CENSUS,
    MAX_GROUP_CHARS,
    MAX_STILL,
    CensusRequest,
    CensusRow,
    Load,
    LoadReport,
)
from batonpass.simserver.entity.feed import CommitFeed
from batonpass.simserver.entity.sleep import Sleep
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.entity.world_faults import INTERVAL_NS, MAX_KINDS, WorldFaults
from batonpass.simserver.server.load_report import CROWDED, LoadMeter, Loads, census_rows, moved_bytes
from batonpass.simserver.world.demo_balls import Balls
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import held_lease, ports_of
from tests.simserver.stage import ADA, BALL, Stage

PERIOD_NS = 50_000_000
LOAD = Load(tick_ppm=800_000, entities=9, leaving=0, inputs_per_s=0, bytes_per_s=0)


def measure(meter: LoadMeter, now_s: float, inputs: int = 0, moved: int = 0) -> Load:
    return meter.measure(round(now_s * 1e9), entities=2, leaving=1, inputs=inputs, moved_bytes=moved)


@given(st.lists(st.integers(0, 10 * PERIOD_NS), min_size=1, max_size=30))
def test_the_load_is_the_mean_part_of_the_period(used_ns: list[int]) -> None:
    meter = LoadMeter(PERIOD_NS)
    for one in used_ns:
        meter.ticked(one)
    load = measure(meter, 1.0)
    assert abs(load.tick_ppm - 1e6 * sum(used_ns) / len(used_ns) / PERIOD_NS) <= 1
    assert (load.entities, load.leaving) == (2, 1)
    assert meter.last == load


def test_a_server_too_busy_to_tick_is_not_idle() -> None:
    meter = LoadMeter(PERIOD_NS)
    meter.ticked(2 * PERIOD_NS)
    assert measure(meter, 1.0).tick_ppm == 2_000_000
    assert measure(meter, 2.0).tick_ppm == 2_000_000


def test_inputs_and_bytes_are_rates_since_the_last_time() -> None:
    meter = LoadMeter(PERIOD_NS)
    assert measure(meter, 5.0, inputs=1000, moved=10_000).inputs_per_s == 0, "since when is not known"
    load = measure(meter, 7.0, inputs=1300, moved=11_000)
    assert (load.inputs_per_s, load.bytes_per_s) == (150, 500)
    assert measure(meter, 8.0, inputs=0, moved=0).inputs_per_s == 0, "counters that began anew"


def test_bytes_are_those_of_both_ways() -> None:
    assert moved_bytes({"bytes_in": 3, "bytes_out": 4, "links": 9}) == 7
    assert moved_bytes({}) == 0


@dataclass
class Life:
    step_ns: int = 0
    ticks_here: int = 0
    world: Any = None
    sleep: Any = None
    quarantine_reason: str = ""
    ownership: Ownership = UNTOLD
    passive: None = None
    is_untaken: bool = False
    kind: str = "ball"
    schema: int = 1
    stint: Any = field(default_factory=lambda: SimpleNamespace(first_tick_ns=0, last_tick_ns=0))

    @property
    def seen(self) -> Any:
        return self.world

    def enter(self) -> int:
        return 0

    def leave(self, _began_ns: int) -> int:
        return 0

    def fault(self, doing: str, error: BaseException) -> None:
        logging.getLogger("batonpass.simserver.world.api").error("the world failed, %s", doing, exc_info=error)

    @property
    def quarantine(self) -> Any:
        return SimpleNamespace(wherever="" if self.is_untaken else self.quarantine_reason)


@dataclass
class Holding:
    id: str
    life: Life = field(default_factory=Life)


class Squads(Balls):
    def affinity(self, state: Any) -> str:
        if state == "bad":
            raise KeyError("no squad")
        return str(state)


class Towns(Squads):
    """Who is in state `squad!` is immovable; of `squad?` and `squad1` the world does not know it."""

    def affinity(self, state: Any) -> str:
        return super().affinity(state.strip("!?1"))

    def immovable(self, state: Any) -> Any:
        if "?" in state:
            raise KeyError("not known")
        return 1 if "1" in state else "!" in state


def rows(holdings: list[Holding], world: Any = None, limit: int = 512, gone: str = "") -> list[CensusRow]:
    return census_rows(holdings, world or Balls(), LOAD, 0.05, limit, lambda name: name != gone)  # type: ignore[arg-type]  # what is needed of holdings


def test_costs_are_shares_of_the_load_and_who_leaves_is_left_out() -> None:
    holdings = [Holding(f"alpha.e{n}", Life(step_ns=n * 100, ticks_here=20)) for n in range(5)]
    census = rows(holdings, gone="alpha.e4")
    assert [row.entity for row in census] == ["alpha.e0", "alpha.e1", "alpha.e2", "alpha.e3"]
    assert [row.cost_ppm for row in census] == [0, 133_333, 266_666, 400_000]
    assert {row.here_ms for row in census} == {1000}
    assert len(rows(holdings, limit=2)) == 2


def test_who_sleeps_costs_nothing_and_is_counted() -> None:
    awake, sleeper = Holding("alpha.e0", Life(step_ns=100)), Holding("alpha.e1", Life(step_ns=100, sleep=Sleep(3)))
    assert [row.cost_ppm for row in rows([awake, sleeper])] == [800_000, 0]
    assert LoadMeter(1).measure(1, entities=2, leaving=0, inputs=0, moved_bytes=0, asleep=1).asleep == 1


def test_members_of_a_group_stand_beside_each_other_and_a_world_that_fails_has_none() -> None:
    squads = ["b", "a", "", "b", "bad", "x" * 100]
    census = rows([Holding(f"alpha.e{n}", Life(world=squad)) for n, squad in enumerate(squads)], Squads())
    assert [(row.group[:1], row.entity[-1]) for row in census] == [
        ("", "2"), ("", "4"), ("a", "1"), ("b", "0"), ("b", "3"), ("x", "5"),
    ]  # fmt: skip
    assert len(census[-1].group) == MAX_GROUP_CHARS


def squads_of(size: int, count: int) -> list[Holding]:
    return [Holding(f"alpha.e{n:04d}", Life(1000, 10**6, f"g{n // size:02d}")) for n in range(count)]


@pytest.mark.parametrize("size", [1, 7, 100, 512])
def test_of_a_group_that_the_census_has_no_room_for_nobody_is_named_and_nothing_parts_it(size: int) -> None:
    """What was named of it would be taken for all of it, and moved."""
    holdings = squads_of(size, size * (2 * MAX_CENSUS // size + 1))
    census = rows(holdings, Squads())
    assert set(Counter(row.group for row in census).values()) == {size}
    assert len(census) == MAX_CENSUS // size * size
    residents = tuple(Resident(one.entity, "alpha.s1", 1000.0, one.cost_ppm / 1e6, one.group) for one in census)
    view = View((ServerLoad("alpha.s1", 0.9, len(holdings)), ServerLoad("alpha.s2", 0.1, 9)), residents)
    balance = Balance(moves_per_s=1000.0)
    moves = PlacementLimits(balance).admit(relieve(view, balance), view, 1000.0)
    moved = Counter(row.group for row in census if row.entity in {move.entity for move in moves})
    assert size > 400 or moved, "of larger ones each is too much to move at once"
    assert set(moved.values()) <= {size}


def test_a_group_of_which_somebody_may_not_be_moved_now_stays_and_smaller_ones_go() -> None:
    holdings = [*squads_of(4, 8), Holding("alpha.x", Life(world="g02"))]
    assert {row.group for row in rows(holdings, Squads(), gone="alpha.e0005")} == {"g00", "g02"}
    assert {row.group for row in rows(holdings, Squads(), limit=3)} == {"g02"}


def test_failures_row_41_what_is_quarantined_is_not_sent_about_unless_all_have_to_go() -> None:
    holdings = [*squads_of(4, 4), Holding("alpha.x", Life(world="g00", step_ns=1000, quarantine_reason="poison"))]
    assert {row.entity for row in rows(holdings, Squads())} == {f"alpha.e{n:04d}" for n in range(4)}, (
        "who is with it goes"
    )
    those: list[Any] = holdings
    census = census_rows(those, Squads(), LOAD, 0.05, MAX_CENSUS, lambda _: True, is_drained=True)
    assert (len(census), census[-1].entity, census[-1].cost_ppm) == (5, "alpha.x", 0)


def untaken_ones(count: int, kind: str = "ball", schema: int = 2) -> list[Holding]:
    bad = Life(world="bad", quarantine_reason="2 is later than 1", is_untaken=True, kind=kind, schema=schema)
    lives = [replace(bad) for _ in range(count)]
    return [Holding(f"alpha.{kind}{schema}-{n}", life) for n, life in enumerate(lives)]


def test_failures_row_28_what_is_not_taken_is_named_first_and_nothing_is_asked_about_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    census = rows([*in_states("a", "a!", "b"), *untaken_ones(2)], Towns())
    assert [(row.entity, row.untaken) for row in census[:2]] == [("alpha.ball2-0", True), ("alpha.ball2-1", True)]
    assert [(row.group, row.immovable, row.cost_ppm) for row in census[:2]] == [("", False, 0)] * 2
    assert [(row.entity, row.untaken) for row in census[2:]] == [(f"alpha.e{n}", False) for n in (2, 0, 1)]
    assert [row.entity for row in rows(untaken_ones(2), gone="alpha.ball2-0")] == ["alpha.ball2-1"], "it is on its way"
    assert [row.entity for row in rows([*in_states("bad"), *untaken_ones(2)], Towns(), limit=2)] == [
        "alpha.ball2-0",
        "alpha.ball2-1",
    ], "nor is anything asked about others, for whom there is no room"
    drained: list[Any] = [*in_states("a"), *untaken_ones(1)]
    census = census_rows(drained, Towns(), LOAD, 0.05, MAX_CENSUS, lambda _: True, is_drained=True)
    assert [(row.entity, row.untaken) for row in census] == [("alpha.ball2-0", True), ("alpha.e0", False)]
    assert "the world failed" not in caplog.text


def test_failures_row_28_what_no_server_takes_leaves_room_in_the_census_for_what_one_does() -> None:
    holdings = [*untaken_ones(2 * MAX_CENSUS, "wreck"), *untaken_ones(3), *untaken_ones(1, schema=3), *in_states("a")]
    census = rows(holdings, Squads())
    assert len(census) == MAX_CENSUS // 2 + 1, "and for who is hot"
    assert [row.entity for row in census[:6]] == [
        "alpha.wreck2-0", "alpha.ball2-0", "alpha.ball3-0", "alpha.wreck2-1", "alpha.ball2-1", "alpha.wreck2-2",
    ]  # fmt: skip


def in_states(*states: str) -> list[Holding]:
    return [Holding(f"alpha.e{n}", Life(1000, 10**6, state)) for n, state in enumerate(states)]


def rooted(census: list[CensusRow]) -> set[str]:
    return {row.entity for row in census if row.immovable}


def test_who_is_immovable_is_named_so_and_keeps_nobody_else_from_being_named() -> None:
    towers = [Holding(f"alpha.tower-{n}", Life(1000, 10**6, "!")) for n in range(MAX_CENSUS)]
    census = rows([*towers, *in_states("", "", "b", "a!", "a", "b")], Towns())
    assert len(census) == MAX_CENSUS
    assert [row.entity for row in census[:4]] == ["alpha.e0", "alpha.e1", "alpha.e2", "alpha.e5"]
    assert rooted(census) == {row.entity for row in census[4:]}, "the others of its group come last, if there is room"
    assert {row.cost_ppm for row in census} == {LOAD.tick_ppm // (MAX_CENSUS + 6)}, "what they cost counts"


def test_the_group_of_one_who_is_immovable_is_named_whole_and_balance_moves_none_of_it() -> None:
    census = rows(in_states("a", "b", "a!", "b", "a", ""), Towns())
    assert [row.entity[-1] for row in census] == ["5", "1", "3", "0", "2", "4"]
    assert rooted(census) == {"alpha.e2"}
    residents = tuple(
        Resident(one.entity, "alpha.s1", 1000.0, one.cost_ppm / 1e6, one.group, one.immovable) for one in census
    )
    view = View((ServerLoad("alpha.s1", 1.2, 6), ServerLoad("alpha.s2", 0.0)), residents)
    balance = Balance(hot=0.2, cool=0.1)
    moves = PlacementLimits(balance).admit(relieve(view, balance), view, 1000.0)
    assert {move.entity[-1] for move in moves} == {"5", "1", "3"}


def test_a_world_that_cannot_say_whether_it_is_immovable_keeps_it_from_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert rooted(rows(in_states("?", "1", "!"), Towns())) == {"alpha.e2"}
    assert "the world failed, immovable" in caplog.text
    assert "immovable has to say True or False, not 1" in caplog.text


def test_a_world_that_says_nothing_of_it_has_nobody_who_is_immovable() -> None:
    assert rooted(rows(in_states("!", "a!"), Squads())) == set()


def test_a_drained_server_names_who_is_immovable_like_all_others_and_asks_of_nobody_else() -> None:
    asked: list[str] = []

    class Asked(Balls):
        def immovable(self, state: Any) -> bool:
            asked.append(state)
            return bool(state == "!")

    holdings: list[Any] = in_states("!", "", "!", "")
    census = census_rows(holdings, Asked(), LOAD, 0.05, 3, lambda _: True, is_drained=True)
    assert [(row.entity[-1], row.immovable) for row in census] == [("0", True), ("1", False), ("2", True)]
    assert asked == ["!", "", "!"]


def test_a_drained_server_names_whom_it_can_whoever_belongs_together() -> None:
    holdings: list[Any] = squads_of(100, 8 * 100)
    census = census_rows(holdings, Squads(), LOAD, 0.05, MAX_CENSUS, lambda _: True, is_drained=True)
    assert len(census) == MAX_CENSUS
    large: list[Any] = squads_of(MAX_CENSUS + 1, MAX_CENSUS + 1)
    assert len(census_rows(large, Squads(), LOAD, 0.05, MAX_CENSUS, lambda _: True, is_drained=True)) == MAX_CENSUS


def test_of_a_drained_server_only_those_are_looked_at_who_can_be_named_and_costs_are_shares_of_all() -> None:
    asked: list[str] = []

    def stays(entity: str) -> bool:
        asked.append(entity)
        return entity != "alpha.e0"

    holdings: list[Any] = [Holding(f"alpha.e{n}", Life(step_ns=1000)) for n in range(10)]
    census = census_rows(holdings, Balls(), LOAD, 0.05, 2, stays, is_drained=True)
    assert [row.entity for row in census] == ["alpha.e1", "alpha.e2"]
    assert asked == ["alpha.e0", "alpha.e1", "alpha.e2"]
    assert {row.cost_ppm for row in census} == {LOAD.tick_ppm // 10}


def test_a_server_that_has_not_ticked_yet_has_a_census_all_the_same() -> None:
    assert [row.cost_ppm for row in rows([Holding("alpha.e0")])] == [0]


class Known(list[Any]):
    """Entities in place of a table of them."""

    feed = CommitFeed()


def loads_of(holdings: Any, departures: Any, post: Any, homes: list[Any]) -> Loads:
    home, link = SimpleNamespace(members=lambda: homes), SimpleNamespace(stats={})
    ports = ports_of(home=home, link=link, outbox=post, clock=Clock())
    return Loads(ports, held_lease(), holdings, departures, LoadMeter(1), lambda: 0, lambda: False, 3)


@pytest.mark.parametrize(("leaving", "told"), [(CROWDED - 1, 3), (CROWDED, 0)])
def test_while_very_many_are_on_their_way_nobody_is_told_who_else_is_here(leaving: int, told: int) -> None:
    sent: list[Any] = []
    departures = SimpleNamespace(under_way=leaving, may_be_moved=lambda name: True)
    holdings = Known(Holding(f"alpha.e{number}", Life()) for number in range(3))
    post = SimpleNamespace(send=lambda message, *_, **__: sent.append(message))
    loads_of(holdings, departures, post, []).census(
        CensusRequest(number=1, limit=10), "alpha.h1", cast(Any, Balls()), 0.05
    )
    assert [(len(census.rows), census.load.leaving, census.load.entities) for census in sent] == [(told, leaving, 3)]


async def test_for_how_long_an_entity_has_been_here_is_told_in_seconds_though_ticks_are_skipped(system: System) -> None:
    """At a load of 1.02 each tick begins two periods after the last one."""
    stage = Stage(system)
    known = Holdings(stage.environment, Written())
    holding = known.spawn(BALL, "ball", {}, Fence(1), Ownership(ADA, 1))
    for number in range(301):
        holding.life.commit(holding.life.world, 1 + number * 100_000_000)
    (row,) = census_rows(known, stage.environment.world, LOAD, 0.05, 10, lambda _: True)
    assert row.here_ms >= 30_000


async def test_failures_row_28_how_many_are_not_taken_is_counted(system: System) -> None:
    stage = Stage(system)
    known = Holdings(stage.environment, Written())
    taken = known.spawn(BALL, "ball", {}, Fence(1), Ownership(ADA, 1)).life.snapshot()
    known.start("alpha.later", Fence(1), replace(taken, schema=2))
    known.start("alpha.poisoned", Fence(1), replace(taken, broken="poison"))
    assert known.untaken == 1
    census = census_rows(known, stage.environment.world, LOAD, 0.05, 10, lambda _: True)
    assert [(row.entity, row.untaken) for row in census] == [("alpha.later", True), (BALL, False)]


def test_a_hot_server_with_many_that_no_server_takes_can_be_relieved() -> None:
    holdings = [*untaken_ones(MAX_CENSUS, "wreck"), *in_states("a", "b", "c")]
    assert any(not row.untaken for row in rows(holdings, Squads()))


# --- what stands still ------------------------------------------------------------------------------------------------


class Told:
    """The loads of one server, and what it has told its homeserver."""

    def __init__(self, system: System, world: Any = None) -> None:
        self.stage = Stage(system, world=world)
        self.known = Holdings(self.stage.environment, Written())
        self.reports: list[LoadReport] = []
        retry_backoff = SimpleNamespace(too_large=lambda _: 0)
        departures = SimpleNamespace(under_way=0, may_be_moved=lambda _: True, retry_backoff=retry_backoff)
        post = SimpleNamespace(send=lambda message, *_, **__: self.reports.append(message))
        home = SimpleNamespace(name="alpha.h1", link_host="127.0.0.1", link_port=1)
        self.loads = loads_of(self.known, departures, post, [home])

    def came(self, number: int, **fields: Any) -> Life:
        snapshot = replace(self.stage.fresh(), **({"tick": 9} | fields))
        life: Any = self.known.start(f"alpha.e{number:04d}", Fence(1), snapshot).life
        return life  # type: ignore[no-any-return]  # the real one


async def test_failures_row_41_how_many_are_quarantined_and_which_and_why_is_told_with_the_load(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told(system)
    told.came(0)
    told.came(1, broken="poison")
    told.came(2, schema=9)
    load, rows = told.loads.measure(), told.loads._some_still()
    assert (load.quarantined, load.untaken, load.schema_version) == (1, 1, 3)
    assert [(row.entity, row.untaken, row.failed_here) for row in rows] == [
        ("alpha.e0001", False, False),
        ("alpha.e0002", True, False),
    ]
    assert rows[0].why == "poison"
    counted = "2 entities are not simulated here: 1 quarantined, 1 not taken by the world here"
    line = f"{counted}; such as alpha.e0001: poison"
    assert caplog.text.count(line) == 1
    told.loads._some_still()
    assert caplog.text.count(line) == 1, "once a minute"


async def test_what_comes_to_stand_still_is_told_at_once_and_not_with_the_next_report(
    system: System, autojump_clock: MockClock
) -> None:
    told = Told(system)
    life: Any = told.came(0)
    async with trio.open_nursery() as nursery:
        await nursery.start(told.loads.serve)
        await trio.sleep(10.5)
        before = len(told.reports)
        life.failed(ValueError("poison"))
        await trio.sleep(0.1)
        assert [len(report.still) for report in told.reports[before:]] == [1]
        assert told.reports[-1].still[0].failed_here
        nursery.cancel_scope.cancel()


async def test_those_that_a_report_has_no_room_for_have_their_turn_and_what_failed_on_arrival_comes_first(
    system: System,
) -> None:
    told, count = Told(system), 3 * MAX_STILL
    for number in range(count):
        told.came(number, broken="poison")
    first: Any = told.came(count)
    first.failed(ValueError("poison"))
    named: set[str] = set()
    for _ in range(4):
        rows = told.loads._some_still()
        assert (len(rows), rows[0].entity) == (MAX_STILL, first.id)
        named |= {row.entity for row in rows}
    assert len(named) == count + 1


@pytest.mark.parametrize(
    ("tick", "broken", "ticks_here", "failed_here"),
    [(9, "", 0, True), (9, "", 99, True), (9, "", 100, False), (0, "", 0, False), (9, "poison", 0, False)],
    ids=["at once", "within five seconds", "later", "new", "stood still before"],
)
async def test_only_what_ran_before_and_fails_in_its_first_moments_has_failed_on_arrival(
    system: System, tick: int, broken: str, ticks_here: int, failed_here: bool
) -> None:
    life: Any = Told(system).came(0, tick=tick, broken=broken)
    life._ticks_here = ticks_here
    life.failed(ValueError("poison"))
    assert life.quarantine.failed_here is failed_here
    life.release()
    assert not life.quarantine_reason
    life.enter_quarantine("its actor crashed")
    assert not life.quarantine.failed_here, "nor is it where it comes from that is at fault"


@pytest.mark.parametrize("said", [None, 7, b"squad", "\ud800"])
async def test_what_is_no_group_is_a_fault_of_the_world_and_no_group_of_that_name(
    system: System, caplog: pytest.LogCaptureFixture, said: Any
) -> None:
    class Grouped(Balls):
        def affinity(self, state: Any) -> Any:
            return said

    told = Told(system, Grouped())
    for number in range(5):
        told.came(number)
    census = census_rows(told.known, told.stage.environment.world, LOAD, 0.05, 10, lambda _: True)
    assert [row.group for row in census] == [""] * 5
    assert told.stage.counts["world_failed"] == 5
    assert caplog.text.count("the world failed, affinity") == 1, "one line for all of them"


def test_of_each_kind_of_fault_there_is_a_line_a_minute_and_the_next_says_how_many_there_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = WorldFaults()
    for number in range(5):
        assert faults.failed(f"tick: alpha.e{number}", ValueError("no"), number) is (number == 0)
    assert faults.failed("tick: alpha.e9", KeyError("no"), 5)
    assert faults.failed("migrate: alpha.e9", ValueError("no"), 6)
    assert faults.failed("tick: alpha.e5", ValueError("no"), INTERVAL_NS)
    assert "tick: alpha.e5 (4 more like it since the last line)" in caplog.text
    for number in range(MAX_KINDS):
        assert faults.failed(f"kind {number}: alpha.e9", ValueError("no"), 7)
    assert len(faults._kinds) == MAX_KINDS
