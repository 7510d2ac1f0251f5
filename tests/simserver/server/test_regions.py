"""What the cells of a server cost, and where a border through one would halve that."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batonpass.actors import System
from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.model.regions import RegionTable, divided
from batonpass.authority.wire.placement import MoveItem
from batonpass.authority.wire.regions import MAX_CELL_ROWS, CellRow, RegionRow, RegionWord
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.server.regions import RegionDuties, cell_rows, since_ns_of
from tests.homeserver.drifters import Drifters
from tests.simserver.entity.test_table import Written
from tests.simserver.server.test_load_report import LOAD
from tests.simserver.stage import Stage

S1, S2 = "alpha.s1", "alpha.s2"
TABLE = RegionTable(1, 2, divided([S1, S2], (0, 0), (10, 4)))
COORDINATES = st.floats(-100, 100, width=32) | st.floats(allow_nan=False, allow_infinity=False)
PLACED = st.lists(st.tuples(st.tuples(COORDINATES, COORDINATES), st.integers(0, 10**6)), max_size=40)


def rows_of(placed: list[tuple[tuple[float, ...], int]], weight: int = 1) -> list[CellRow]:
    return cell_rows(TABLE, S1, placed, weight, 400_000, lambda _: 7)


def test_the_load_is_shared_out_among_cells_and_entities_that_are_about_to_leave() -> None:
    (row,) = rows_of([((1.0, 0.0), 100), ((2.0, 1.0), 100), ((3.0, 9.0), 100), ((7.0, 0.0), 100)], weight=3)
    assert (row.cell, row.entities, row.cost_ppm, row.here_ms) == ("c0", 9, 300_000, 7)
    assert (row.axis, row.at, row.low_ppm) == (1, 0.5, 100_000)


def test_what_is_all_at_one_place_cannot_be_halved() -> None:
    (row,) = rows_of([((1.0, 2.0), 100)] * 3)
    assert (row.entities, row.at, row.low_ppm) == (3, None, 0)
    assert rows_of([]) == [CellRow(cell="c0", entities=0, cost_ppm=0, here_ms=7)]


def test_the_most_expensive_cells_are_named() -> None:
    table = RegionTable(1, 1, divided([S1] * 300, (0,), (300,)))
    rows = cell_rows(table, S1, [((number + 0.5,), number) for number in range(300)], 1, 10**6, lambda _: 0)
    assert len(rows) == MAX_CELL_ROWS
    assert rows[0].cost_ppm > rows[-1].cost_ppm > 0


@given(PLACED)
@example([((1.0, -1.5e308), 1), ((1.0, 1.5e308), 1)])
def test_a_border_that_is_proposed_has_some_on_both_sides_and_can_be_drawn(
    placed: list[tuple[tuple[float, ...], int]],
) -> None:
    for row in rows_of(placed):
        inside = [(position, cost) for position, cost in placed if TABLE.cell_at(position) == row.cell]
        assert row.entities == len(inside)
        if row.at is None:
            # At one place along the axis along which they are spread the most.
            continue
        below = [cost for position, cost in inside if position[row.axis] < row.at]
        assert 0 < len(below) < len(inside)
        assert 0 <= row.low_ppm <= row.cost_ppm + 1
        halves = TABLE.split(row.cell, row.axis, row.at)
        assert len(halves.cells) == len(TABLE.cells) + 1


def test_how_long_a_cell_has_been_here_outlives_a_split_and_a_merge() -> None:
    before = {"c0": 5, "c10": 7, "c11": 9}
    assert [since_ns_of(name, before, 99) for name in ("c0", "c01", "c1", "c100")] == [5, 5, 9, 7]
    assert since_ns_of("c1", {"c10": 7}, 99) == 99
    assert since_ns_of("c", {}, 99) == 99


@pytest.mark.parametrize(("was_refused", "goes_to"), [(False, S2), (True, "alpha.s3")])
async def test_what_a_drained_server_is_told_to_move_goes_where_it_belongs_unless_it_was_refused_there(
    system: System, was_refused: bool, goes_to: str
) -> None:
    stage = Stage(system, S1, Drifters())
    holdings = Holdings(stage.environment, Written())
    ports: Any = SimpleNamespace(home=None, outbox=None, clock=Clock())
    lease: Any = None
    duties = RegionDuties(
        ports, lease, holdings, stage.environment, lambda: LOAD, lambda entity, target: was_refused and target == S2
    )
    for entity, at in (("alpha.far", 9.0), ("alpha.near", 1.0), ("alpha.nowhere", -1.0)):
        holdings.start(entity, Fence(1), replace(stage.fresh("drifter"), world={"at": at, "per_tick": 0.0}))
    moves = [
        MoveItem(transfer_id=f"transfer-{number}", entity=entity, target="alpha.s3")
        for number, entity in enumerate(["alpha.far", "alpha.near", "alpha.nowhere", "alpha.gone"])
    ]
    assert duties.redirected(moves) == moves, "there is no table yet"
    duties.told(RegionWord(row=RegionRow(**RegionTable(1, 1, divided([S1, S2], (0,), (10,))).to_data())))
    moved = {move.entity: move.target for move in duties.redirected(moves)}
    assert moved.pop("alpha.far") == goes_to
    assert set(moved.values()) == {"alpha.s3"}


class Chooses(Drifters):
    """Hears which servers take entities, and fails on a single one."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, ...]] = []

    def takers_changed(self, servers: tuple[str, ...]) -> None:
        self.heard.append(servers)
        if len(servers) == 1:
            raise ZeroDivisionError("alone")


@pytest.mark.usefixtures("either_kind")
def test_a_world_hears_which_servers_take_entities_whenever_others_do() -> None:
    nobody: Any = None
    world = Chooses()
    stage = Stage(nobody, S1, world)
    ports: Any = SimpleNamespace(home=None, outbox=None, clock=Clock())
    lease: Any = SimpleNamespace(peers=(S1, S2, "alpha.s3"), aside=frozenset({"alpha.s3"}))
    holdings = Holdings(stage.environment, Written())
    duties = RegionDuties(ports, lease, holdings, stage.environment, lambda: LOAD, lambda entity, target: False)
    duties._tell_takers()
    duties._tell_takers()
    assert world.heard == [(S1, S2)]
    lease.aside = frozenset()
    duties._tell_takers()
    assert world.heard == [(S1, S2), (S1, S2, "alpha.s3")]
    lease.peers = (S1,)
    duties._tell_takers()
    duties._tell_takers()
    assert world.heard[2:] == [(S1,)], "what it fails on is not said again"
    assert stage.counts["world_failed"] == 1
