"""Cells are moved, cut and joined until loads are in order, and then left alone (FAILURES 33)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.model.regions import RegionTable, divided
from batonpass.authority.placement.limits import PlacementLimits
from batonpass.authority.placement.policy import Balance, Move, ServerLoad, View
from batonpass.authority.placement.region_policy import (
    CellCost,
    CellsGo,
    CutCell,
    JoinCells,
    RegionChange,
    region_change,
)
from batonpass.simserver.server.regions import cell_rows
from tests.budget import examples

BALANCE = Balance()
S1, S2, S3 = SERVERS = ("alpha.s1", "alpha.s2", "alpha.s3")
_PPM = 1_000_000
Points = Sequence[tuple[tuple[float, ...], int]]
"""Where entities are, and what each costs in millionths of the tick period."""


def admit_all(moves: Iterable[Move], view: View) -> list[Move]:
    return list(moves)


class Space:
    """Entities that stand still, the servers that have them by the table, and what these would report."""

    def __init__(self, table: RegionTable, points: Points, servers: Sequence[str] = SERVERS) -> None:
        self.table = table
        self.points = points
        self.servers = servers
        self.here_s = 1e6

    def costs(self) -> dict[str, CellCost]:
        found = {}
        for server in self.servers:
            load = self.load_ppm(server)
            for row in cell_rows(self.table, server, self.of(server), 1, load, lambda _: 0):
                cost = row.cost_ppm / _PPM
                found[row.cell] = CellCost(cost, self.here_s, row.entities, row.axis, row.at, row.low_ppm / _PPM)
        return found

    def of(self, server: str) -> Points:
        return [point for point in self.points if self.table.server_at(point[0]) == server]

    def load_ppm(self, server: str) -> int:
        return sum(cost for _, cost in self.of(server))

    def loads(self) -> list[ServerLoad]:
        return [ServerLoad(server, self.load_ppm(server) / _PPM, len(self.of(server))) for server in self.servers]

    def change(self, gone: Sequence[str] = (), *, balancing: bool = True) -> RegionChange | None:
        loads = self.loads()
        hot = [load.name for load in loads if load.tick_fraction > BALANCE.hot and load.name not in gone]
        limits = PlacementLimits(replace(BALANCE, min_hold_s=0.0))
        return region_change(
            self.table,
            self.costs(),
            loads,
            gone,
            hot,
            BALANCE,
            lambda moves, view: limits.admit(moves, view, 0.0),
            balancing=balancing,
        )

    def carry_out(self, change: RegionChange) -> None:
        match change:
            case CellsGo(moves):
                self.table = self.table.move({move.entity: move.target for move in moves})
            case CutCell(cell, axis, at, move):
                self.table = self.table.split(cell, axis, at)
                if move is not None:
                    self.table = self.table.move({move.entity: move.target})
            case JoinCells(cell):
                self.table = self.table.merge(cell)


def spread(count: int, cost_ppm: int) -> Points:
    return [((float(number), float(number % 7)), cost_ppm) for number in range(count)]


def test_a_hot_server_with_all_of_space_gives_up_parts_of_it_until_it_is_not_hot() -> None:
    space = Space(RegionTable(1, 2, S1), spread(100, 18_000))
    assert space.load_ppm(S1) == 1_800_000
    changes: Counter[str] = Counter()
    while (change := space.change()) is not None:
        space.carry_out(change)
        changes[type(change).__name__] += 1
        assert sum(changes.values()) < 50
    assert changes["CutCell"] >= 2
    assert [load.tick_fraction <= BALANCE.hot for load in space.loads()] == [True] * 3


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.tuples(st.integers(0, 50), st.integers(0, 50)), st.integers(1, 60_000)), max_size=60),
    st.lists(st.sampled_from(SERVERS), min_size=1, max_size=5),
    st.sets(st.sampled_from(SERVERS), max_size=2),
)
def test_with_a_load_that_does_not_change_there_is_an_end_and_no_cell_is_with_a_server_that_is_gone(
    points: list[tuple[tuple[float, ...], int]], servers: list[str], gone: set[str]
) -> None:
    space = Space(RegionTable(1, 2, divided(servers, (0, 0), (50, 50))), points)
    places = {place for place, _ in points}
    for _ in range(300):
        before = space.table
        change = space.change(sorted(gone))
        if change is None:
            break
        space.carry_out(change)
        assert space.table != before
    else:
        pytest.fail("changes have no end")
    assert not space.table.servers & gone
    for place in places:
        assert space.table.server_at(place) not in gone


def test_a_server_that_is_gone_keeps_no_cell_whether_balance_is_on_or_not() -> None:
    table = RegionTable(1, 2, divided([S1, S2, S1, S3], (0, 0), (10, 10)))
    space = Space(table, spread(9, 1000), servers=[S2, S3])
    change = space.change([S1], balancing=False)
    assert isinstance(change, CellsGo)
    assert {move.entity for move in change.moves} == {cell.name for cell in table.cells if cell.server == S1}
    assert {move.target for move in change.moves} <= {S2, S3}
    alone = Space(table, [], servers=[])
    assert alone.change([S1, S2, S3], balancing=False) is None


def test_without_balance_nothing_else_happens() -> None:
    space = Space(RegionTable(1, 2, S1), spread(100, 18_000))
    assert space.change(balancing=False) is None
    assert isinstance(space.change(), CutCell)


def test_cheap_halves_of_one_quiet_server_are_joined_after_the_minimum_hold() -> None:
    table = RegionTable(1, 2, divided([S1, S1, S2, S2], (0, 0), (10, 10)))
    space = Space(table, [((1.0, 1.0), 10_000), ((1.0, 9.0), 10_000), ((9.0, 1.0), 160_000), ((9.0, 9.0), 10_000)])
    space.here_s = BALANCE.min_hold_s - 1
    assert space.change() is None
    space.here_s = BALANCE.min_hold_s
    assert space.change() == JoinCells("c0")
    space.carry_out(JoinCells("c0"))
    assert space.change() is None, "the other two cost too much together"


def test_of_cells_of_which_no_server_says_anything_nothing_is_joined() -> None:
    table = RegionTable(1, 2, divided([S1, S1], (0, 0), (10, 10)))
    loads = [ServerLoad(S1, 0.0)]
    nothing = region_change(table, {}, loads, (), (), BALANCE, admit_all, balancing=True)
    assert nothing is None


def test_what_the_limits_do_not_let_through_is_left() -> None:
    space = Space(RegionTable(1, 2, S1), spread(100, 10_000))
    loads = space.loads()
    args = (space.table, space.costs(), loads, (), [S1], BALANCE)
    assert region_change(*args, lambda *_: [], balancing=True) is None
    change = region_change(*args, admit_all, balancing=True)
    assert isinstance(change, CutCell)
    assert change.move is not None


def test_one_entity_that_alone_makes_a_server_hot_is_not_cut() -> None:
    space = Space(RegionTable(1, 2, S1), [((1.0, 1.0), 2_000_000)], servers=[S1, S2])
    assert not isinstance(space.change(), CutCell)
