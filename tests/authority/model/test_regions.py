"""Cells partition space: every position is in exactly one, whatever was split, merged and moved."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.regions import (
    MAX_CELLS,
    MAX_DEPTH,
    ROOT_CELL,
    Border,
    RegionCell,
    RegionTable,
    divided,
    is_cell_name,
)
from tests.budget import examples

SERVERS = ("alpha.s1", "alpha.s2", "alpha.s3")
COORDINATES = st.floats(-10, 10, width=16) | st.floats(allow_nan=False, allow_infinity=False)
POSITIONS = st.tuples(COORDINATES, COORDINATES, COORDINATES)
FOUR = RegionTable(7, 2, divided((*SERVERS, "alpha.s4"), (0, 0), (10, 10)))


def is_in(cell: RegionCell, position: Sequence[float]) -> bool:
    return all(low <= at < high for low, at, high in zip(cell.low, position, cell.high, strict=False))


def distance_to(cell: RegionCell, position: Sequence[float]) -> float:
    sides = zip(cell.low, position, cell.high, strict=False)
    return math.hypot(*(max(0.0, low - at, at - high) for low, at, high in sides))


class Cells(RuleBasedStateMachine):
    """What is changed at random; the table is looked at by boxes alone, of which nothing here knows how they came."""

    @initialize(axes=st.integers(1, 3))
    def begin(self, axes: int) -> None:
        self.table = RegionTable(1, axes, SERVERS[0])
        self.asked: list[tuple[float, ...]] = []

    def checked(self, after: RegionTable) -> None:
        assert after.revision == self.table.revision + 1
        self.table = after

    @rule(data=st.data(), position=POSITIONS, servers=st.tuples(*[st.sampled_from((None, *SERVERS))] * 2))
    def split(self, data: st.DataObject, position: tuple[float, ...], servers: tuple[str | None, str | None]) -> None:
        cell = data.draw(st.sampled_from(self.table.cells))
        axis = data.draw(st.integers(0, self.table.axes - 1))
        at = position[axis]
        if cell.low[axis] < at < cell.high[axis] and len(cell.name) <= MAX_DEPTH:
            before = self.table
            self.checked(before.split(cell.name, axis, at, *servers))
            low, high = self.table.cell(f"{cell.name}0"), self.table.cell(f"{cell.name}1")
            assert (low.server, high.server) == tuple(given or cell.server for given in servers)
            assert {one for one in before.cells if one != cell} == set(self.table.cells) - {low, high}
        else:
            with pytest.raises(Refused):
                self.table.split(cell.name, axis, at, *servers)

    @rule(data=st.data(), server=st.sampled_from((None, *SERVERS)))
    def merge(self, data: st.DataObject, server: str | None) -> None:
        cell = data.draw(st.sampled_from(self.table.cells))
        name, names = cell.name[:-1], {one.name for one in self.table.cells}
        if {f"{name}0", f"{name}1"} <= names:
            low = self.table.cell(f"{name}0")
            self.checked(self.table.merge(name, server))
            assert self.table.cell(name).server == (server or low.server)
        else:
            with pytest.raises(Refused):
                self.table.merge(name, server)

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        names = st.sampled_from([cell.name for cell in self.table.cells])
        moves = data.draw(st.dictionaries(names, st.sampled_from(SERVERS), max_size=3))
        before = {cell.name: cell.server for cell in self.table.cells}
        self.checked(self.table.move(moves))
        assert {cell.name: cell.server for cell in self.table.cells} == before | moves

    @precondition(lambda self: hasattr(self, "table"))
    @rule(position=POSITIONS, distance=st.floats(0, 30) | st.just(0.0))
    def ask(self, position: tuple[float, ...], distance: float) -> None:
        self.asked.append(position[: self.table.axes])
        near = {cell.server for cell in self.table.cells if distance_to(cell, position) <= distance}
        found = self.table.servers_within(position, distance)
        assert found == near | {self.table.server_at(position)}

    @invariant()
    def every_position_is_in_exactly_one_cell(self) -> None:
        corners = [tuple(0.0 if math.isinf(at) else at for at in cell.low) for cell in self.table.cells]
        for position in [*self.asked[-3:], *corners]:
            cells = [cell for cell in self.table.cells if is_in(cell, position)]
            assert [cell.name for cell in cells] == [self.table.cell_at(position)]
            assert cells[0].server == self.table.server_at(position)

    @invariant()
    def it_is_the_same_when_it_was_written_and_read(self) -> None:
        again = RegionTable.from_data(json.loads(json.dumps(self.table.to_data())))
        assert again == self.table
        assert again.digest == self.table.digest != 0

    @invariant()
    def names_are_names_of_cells_and_none_is_above_another(self) -> None:
        names = sorted(cell.name for cell in self.table.cells)
        assert all(map(is_cell_name, names))
        assert not any(after.startswith(before) for before, after in pairwise(names))


Cells.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=12)
test_cells_partition_space = Cells.TestCase


def test_space_is_shared_evenly_among_servers() -> None:
    assert [(cell.name, cell.server, cell.low, cell.high) for cell in FOUR.cells] == [
        ("c00", "alpha.s1", (-math.inf, -math.inf), (5, 5)),
        ("c01", "alpha.s2", (-math.inf, 5), (5, math.inf)),
        ("c10", "alpha.s3", (5, -math.inf), (math.inf, 5)),
        ("c11", "alpha.s4", (5, 5), (math.inf, math.inf)),
    ]
    assert divided(["alpha.s1"], (), ()) == "alpha.s1"
    third = divided(SERVERS, (0,), (9,))
    assert isinstance(third, Border)
    assert third.at == 3.0


@pytest.mark.parametrize(
    ("servers", "low", "high"),
    [
        ((), (0,), (1,)),
        (SERVERS, (), ()),
        (SERVERS, (0,), (1, 1)),
        (SERVERS, (1, 1), (1, 1)),
        (SERVERS, (0,), (math.inf,)),
        (SERVERS, (0,), (5e-324,)),
        (["alpha.s1"] * (MAX_CELLS + 1), (0,), (1,)),
    ],
)
def test_a_box_without_room_is_not_shared(servers: Sequence[str], low: Sequence[float], high: Sequence[float]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        divided(servers, low, high)


def test_where_an_entity_has_to_go() -> None:
    assert FOUR.wanted((4.9, 1), "alpha.s1") is None
    assert FOUR.wanted((5, 1), "alpha.s1") == "alpha.s3"
    assert FOUR.wanted((5, 1, 77), "alpha.s9") == "alpha.s3"
    assert FOUR.wanted((5,), "alpha.s1") is None
    assert FOUR.wanted((math.nan, 1), "alpha.s1") is None
    assert FOUR.wanted((1, math.inf), "alpha.s1") is None


@given(POSITIONS, st.floats(0, 20))
def test_within_the_margin_of_its_cells_an_entity_stays(position: tuple[float, ...], margin: float) -> None:
    table = RegionTable(1, 2, FOUR.root, margin=margin)
    near = {cell.server for cell in table.cells if distance_to(cell, position) <= margin}
    for server in near:
        assert table.wanted(position, server) is None
    assert table.wanted(position, "alpha.s9") == table.server_at(position)


def test_which_servers_have_cells_near_those_of_another() -> None:
    strip = RegionTable(1, 1, divided((*SERVERS, SERVERS[0]), (0,), (8,)))
    assert strip.bordering("alpha.s1", 0) == {"alpha.s2", "alpha.s3"}
    assert strip.bordering("alpha.s2", 0) == {"alpha.s1", "alpha.s3"}
    assert FOUR.bordering("alpha.s1", 0) == {"alpha.s2", "alpha.s3", "alpha.s4"}
    assert FOUR.bordering("alpha.nobody", 100) == set()
    thin = RegionTable(1, 1, divided(SERVERS, (0,), (3,)))
    assert thin.bordering("alpha.s1", 0.5) == {"alpha.s2"}
    assert thin.bordering("alpha.s1", 1) == {"alpha.s2", "alpha.s3"}


def test_there_are_bounds() -> None:
    table = RegionTable(1, 1, "alpha.s1")
    name = ROOT_CELL
    for depth in range(MAX_DEPTH):
        table, name = table.split(name, 0, 1 / 2**depth), f"{name}0"
    with pytest.raises(Refused) as refused:
        table.split(name, 0, 1 / 2**MAX_DEPTH)
    assert refused.value.reason is Reason.FULL
    full = RegionTable(1, 1, divided(["alpha.s1"] * MAX_CELLS, (0,), (1,)))
    with pytest.raises(Refused):
        full.split(full.cells[-1].name, 0, 5.0)
    deeper = {**table.to_data(), "nodes": [[0, 2.0], *table.nodes, "alpha.s1"]}
    with pytest.raises(ValueError, match="borders around"):
        RegionTable.from_data(deeper)


@pytest.mark.parametrize(
    "wrong",
    [
        {"axes": 0},
        {"axes": 4},
        {"axes": True},
        {"margin": -1.0},
        {"margin": math.nan},
        {"hold_s": math.inf},
        {"hold_s": -1.0},
        {"revision": 0},
        {"nodes": []},
        {"nodes": ["alpha.s1", "alpha.s2"]},
        {"nodes": ["nobody"]},
        {"nodes": [[0, 1.0], "alpha.s1"]},
        {"nodes": [[0, 1.0], [0, 2.0], "alpha.s1", "alpha.s2", "alpha.s1"]},
        {"nodes": [[2, 1.0], "alpha.s1", "alpha.s2"]},
        {"nodes": [[3, 1.0], "alpha.s1", "alpha.s2"]},
        {"nodes": [[0, math.inf], "alpha.s1", "alpha.s2"]},
        {"nodes": [[0, "1"], "alpha.s1", "alpha.s2"]},
        {"nodes": [[0], "alpha.s1", "alpha.s2"]},
        {"nodes": [7, "alpha.s1", "alpha.s2"]},
        {"nodes": ["alpha.s1"] * (2 * MAX_CELLS)},
    ],
)
def test_what_is_no_table_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        RegionTable.from_data({**FOUR.to_data(), **wrong})
