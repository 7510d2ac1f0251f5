"""Aircraft that are warned of those whom they will meet, here and as ghosts, and of nobody else."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import dist
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.scenarios.airspace.picture import Fix, Warned, drawn
from batonpass.scenarios.airspace.plan import LaneFlight, most_flights, planned
from batonpass.scenarios.airspace.run import AirspaceRun
from batonpass.scenarios.airspace.world import (
    AIRCRAFT,
    FASTEST_M_PER_S,
    LEVELS_APART,
    LOOK_AHEAD_MS,
    SEPARATION_M,
    ConflictAirspace,
    nearest_m2,
)
from batonpass.simserver.world.neighbourhood import Neighbour
from batonpass.simserver.world.step import NOTHING_CARRIED, Step
from tests.budget import examples

SIZE_M = 120_000
SPEEDUP = 60
LATE = 3


class Sky:
    """Aircraft over four sectors; whom another one has is seen as it was `LATE` ticks ago."""

    def __init__(self, flights: Sequence[LaneFlight]) -> None:
        self.world = ConflictAirspace(SIZE_M, SPEEDUP)
        self.states = {flight.entity: self.world.spawn(AIRCRAFT, flight.params) for flight in flights}
        self.past = [dict(self.states)]
        self.asks = ""

    def tick(self, number: int) -> None:
        after = {}
        for entity, state in self.states.items():
            self.asks = entity
            after[entity] = self.world.advance(state, [], 0.05, Step(NOTHING_CARRIED, number, None, entity, self))
        self.states = after
        self.past = [*self.past[-LATE:], dict(after)]

    def near(self, position: Sequence[float], radius: float, but: str = "") -> tuple[Neighbour, ...]:
        return self._seen(self.states, position, radius, "", 0)

    def ghosts(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        return self._seen(self.past[0], position, radius, "alpha.other", len(self.past) - 1)

    def _seen(
        self, states: dict[str, Any], position: Sequence[float], radius: float, server: str, age: int
    ) -> tuple[Neighbour, ...]:
        mine = sector(self.states[self.asks])
        return tuple(
            Neighbour(entity, tuple(state["at"]), state, Fence(1), 1, server, age)
            for entity, state in states.items()
            if entity != self.asks
            and self.world.position(state) is not None
            and (sector(self.states[entity]) == mine) == (not server)
            and dist(state["at"], position) <= radius
        )


def sector(state: dict[str, Any]) -> str:
    """The server of the part of the sky in which an aircraft is."""
    east, north = (place >= SIZE_M // 2 for place in state["at"])
    return f"alpha.s{1 + east + 2 * north}"


def picture_of_flights() -> str:
    """Forty aircraft over four sectors, as `baton run airspace` draws them."""
    run = flown(planned(10, 20, SIZE_M, 1))
    middle, end = float(SIZE_M // 2), float(SIZE_M)
    corners = ((0.0, 0.0), (middle, 0.0), (0.0, middle), (middle, middle))
    cells = {f"alpha.s{n}": ((x, y), (x + end - middle, y + end - middle)) for n, (x, y) in enumerate(corners, 1)}
    return drawn(run.tracks, run.warnings(), cells, SIZE_M)


def flown(flights: list[LaneFlight]) -> AirspaceRun:
    """What a run has seen once all have left."""
    sky, run = Sky(flights), AirspaceRun(flights, SIZE_M, SPEEDUP)
    for number in range(1, 400):
        sky.tick(number)
        for entity, state in sky.states.items():
            if number == 1 or not state["over"]:
                run.seen(entity, state, sector(state))
        if all(state["over"] for state in sky.states.values()):
            break
    for entity, state in sky.states.items():
        run.seen(entity, state, run.tracks[entity][-1].server)
    return run


@settings(max_examples=examples(60, 5))
@given(
    x=st.integers(-90_000, 90_000),
    y=st.integers(-90_000, 90_000),
    fast=st.tuples(*[st.integers(-2 * FASTEST_M_PER_S, 2 * FASTEST_M_PER_S)] * 2),
)
def test_how_close_two_come_is_what_looking_at_every_moment_finds(x: int, y: int, fast: tuple[int, int]) -> None:
    looked = min(
        dist((x + fast[0] * ms / 1000, y + fast[1] * ms / 1000), (0, 0)) for ms in range(0, LOOK_AHEAD_MS + 1, 100)
    )
    # Between two looks they come at most 85 m closer, and both are rounded to metres.
    assert looked - 90 <= nearest_m2((x, y), fast) ** 0.5 <= looked + 2


@settings(max_examples=examples(40, 5))
@given(pairs=st.integers(0, 12), others=st.integers(0, 12), size_m=st.integers(SIZE_M, 500_000), seed=st.integers())
def test_only_those_meet_who_are_planned_to(pairs: int, others: int, size_m: int, seed: int) -> None:
    flights = planned(pairs, others, size_m, seed)
    assert len({flight.entity for flight in flights}) == 2 * pairs + others
    for one, other in combinations(flights, 2):
        if one.meets == other.entity:
            assert other.meets == one.entity
            assert one.level == other.level
            assert one.speed[0] * other.speed[0] + one.speed[1] * other.speed[1] < 0
            apart = [theirs - ours for ours, theirs in zip(one.at, other.at, strict=True)]
            faster = [theirs - ours for ours, theirs in zip(one.speed, other.speed, strict=True)]
            assert nearest_m2(apart, faster) >= SEPARATION_M**2, "not yet when they begin"
            assert sum(ours * theirs for ours, theirs in zip(apart, faster, strict=True)) < 0, "they come closer"
        else:
            axis = one.speed[0] == 0
            parallel = axis == (other.speed[0] == 0)
            lanes = abs(one.at[not axis] - other.at[not axis]) if parallel else 0
            assert abs(one.level - other.level) >= LEVELS_APART or lanes >= SEPARATION_M


def test_a_plan_for_which_there_are_no_lanes_is_refused() -> None:
    most = most_flights(SIZE_M) // 2
    assert len(planned(most, 0, SIZE_M, 1)) == 2 * most
    with pytest.raises(ValueError, match="lanes"):
        planned(most, 1, SIZE_M, 1)


@settings(max_examples=examples(12, 3), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_whoever_meets_is_warned_on_either_side_of_a_border_and_nobody_else(seed: int) -> None:
    run = flown(planned(4, 4, SIZE_M, seed))
    assert run.is_over
    assert run.findings() == []
    assert len(run.warnings()) == 8
    assert any(one.across for one in run.warnings())


def test_what_is_not_as_planned_is_said() -> None:
    flights = planned(1, 1, SIZE_M, 1)
    one, other, alone = flights
    run = flown([replace(one, meets=""), replace(other, meets=alone.entity), alone])
    assert run.findings() == [
        f"{one.entity} was warned of {other.entity} without need",
        f"{other.entity} was not warned of {alone.entity}",
        f"{other.entity} was warned of {one.entity} without need",
    ]
    never = AirspaceRun(flights, SIZE_M, SPEEDUP)
    assert [text.partition(" was never")[1] for text in never.findings()[:3]] == [" was never"] * 3
    early = flown(flights)
    early.last[one.entity] = {**early.last[one.entity], "over": False}
    for state in early.last.values():
        for warning in state["warnings"].values():
            warning["server"] = ""
    assert early.findings() == [
        f"1 have not left the airspace in time, as {one.entity}",
        "no warning was of an aircraft of another sector",
    ]


@pytest.mark.parametrize(
    "wrong", [{"at": [0]}, {"at": [0.5, 1]}, {"speed": [301, 0]}, {"speed": "fast"}, {"level": None}, {"level": True}]
)
def test_an_aircraft_begins_with_whole_numbers(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"whole numbers|at most"):
        ConflictAirspace(SIZE_M).spawn(AIRCRAFT, {"at": [0, 0], "speed": [0, 0], "level": 300} | wrong)


def test_an_airspace_has_a_size() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ConflictAirspace(0)


def test_the_picture_has_a_line_for_every_stretch_on_a_server_and_for_every_warning() -> None:
    tracks = {"alpha.f1": [Fix((0, 0), "alpha.s1"), Fix((10, 0), "alpha.s2"), Fix((20, 0), "alpha.s2")]}
    cells = {"alpha.s1": ((float("-inf"),) * 2, (5.0, float("inf"))), "alpha.s2": ((5.0, 0.0), (float("inf"),) * 2)}
    warnings = [Warned((0, 0), (20, 0), True), Warned((20, 0), (0, 0), False)]
    picture = drawn(tracks, warnings, cells, 100)
    assert picture.count("<polyline") == 2
    assert picture.count("<line") == 2
    assert picture.count("stroke-dasharray") == 1
    assert "inf" not in picture
    assert picture.endswith("</svg>\n")
