"""Cells bound what they are made of, and a peer is sent exactly what is within reach of its cells."""

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.neighbours.interest import KEPT_ROUNDS, BoundingCells, InterestMap, OwnCells, bounding
from batonpass.simserver.players.cells import CellGrid
from tests.budget import examples

CELLS = st.sets(st.lists(st.integers(-40, 40), min_size=1, max_size=3).map(tuple), max_size=40)
POSITIONS = st.lists(st.floats(-60.0, 60.0), min_size=1, max_size=3).map(tuple)


def covers(bounds: BoundingCells, edge: float, cell: tuple[int, ...]) -> bool:
    centre = [(along + 0.5) * edge for along in cell]
    return any(
        len(one) == len(cell)
        and all(along * bounds.edge <= at <= (along + 1) * bounds.edge for along, at in zip(one, centre, strict=True))
        for one in bounds.cells
    )


@settings(max_examples=examples(200, 50))
@given(CELLS, st.sampled_from([0.5, 1.0, 16.0]), st.integers(14, 60))
def test_a_few_cells_cover_all(cells: Any, edge: float, most: int) -> None:
    bounds = bounding(cells, edge, most)
    assert len(bounds.cells) <= most
    assert bounds.edge >= edge
    assert all(covers(bounds, edge, cell) for cell in cells)


def distance(theirs: BoundingCells, position: tuple[float, ...]) -> float:
    def along(at: float, number: int) -> float:
        return max(number * theirs.edge - at, 0.0, at - (number + 1) * theirs.edge)

    found = [
        math.hypot(*(along(at, number) for at, number in zip(position, cell, strict=True)))
        for cell in theirs.cells
        if len(cell) == len(position)
    ]
    return min(found, default=math.inf)


@settings(max_examples=examples(300, 80))
@given(
    st.sampled_from([1.0, 3.0]),
    st.dictionaries(st.sampled_from(["alpha.s2", "alpha.s3"]), st.tuples(CELLS, st.integers(0, 3)), max_size=2),
    st.lists(POSITIONS, min_size=1, max_size=5),
)
def test_a_peer_is_sent_what_is_within_reach_of_its_cells(reach: float, said: Any, positions: Any) -> None:
    interest, grid = InterestMap(reach, reach), CellGrid(reach)
    of = {peer: BoundingCells(reach * 2**level, frozenset(cells)) for peer, (cells, level) in said.items()}
    for peer, cells in of.items():
        interest.said(peer, cells)
    for position in [*positions, *positions]:
        peers = interest.peers_of(position, grid.cell(position))
        for peer, cells in of.items():
            far = distance(cells, position)
            if not math.isclose(far, reach, rel_tol=1e-9):
                assert (peer in peers) == (far < reach)


def test_what_a_peer_said_counts_until_it_is_forgotten() -> None:
    interest = InterestMap(1.0, 1.0)
    interest.said("alpha.s2", BoundingCells(1.0, frozenset({(0, 0)})))
    assert interest.peers_of((1.5, 0.5), (1, 0)) == ("alpha.s2",)
    interest.forget("alpha.s2")
    assert interest.peers_of((1.5, 0.5), (1, 0)) == ()


def test_a_cell_that_was_left_counts_for_a_while() -> None:
    own = OwnCells(1.0)
    first = own.at([(0, 0)], 10)
    assert own.at([(1, 0)], 11).cells == {(0, 0), (1, 0)}
    assert own.at([(1, 0)], 10 + KEPT_ROUNDS).cells == {(0, 0), (1, 0)}
    later = own.at([(1, 0)], 11 + KEPT_ROUNDS)
    assert later.cells == {(1, 0)}
    assert own.at([(1, 0)], 12 + KEPT_ROUNDS) is later is not first
