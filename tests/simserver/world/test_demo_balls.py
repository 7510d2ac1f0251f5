"""The small world: the same everywhere, always inside its box, and deaf to nonsense."""

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.world.demo_balls import BOX_UM, MAX_SPEED_UM_S, Balls
from batonpass.simserver.world.pending_input import PendingInput
from tests.authority.wire.test_cbor import laughs

PERIOD_S = 0.05
BALLS = Balls()


def push(*speeds: Any, seq: int = 1) -> PendingInput:
    return PendingInput("alpha.ada", seq, cbor2.dumps(list(speeds)))


PLACES = st.lists(st.integers(0, BOX_UM), min_size=3, max_size=3)
SPEEDS = st.lists(st.integers(-MAX_SPEED_UM_S, MAX_SPEED_UM_S), min_size=3, max_size=3)
STATES = st.builds(lambda p, v: BALLS.spawn("ball", {"p": p, "v": v}), PLACES, SPEEDS)
PUSHES = st.lists(SPEEDS.map(lambda speeds: push(*speeds)), max_size=4)


@given(STATES, st.lists(PUSHES, max_size=20))
def test_a_ball_stays_in_its_box_whoever_pushes_it(state: Any, ticks: list[list[PendingInput]]) -> None:
    for pushes in ticks:
        state = BALLS.step(state, pushes, PERIOD_S)
        assert all(type(place) is int and 0 <= place <= BOX_UM for place in state["p"])
        assert all(type(speed) is int for speed in state["v"])


@given(STATES, st.lists(PUSHES, max_size=10))
def test_the_same_state_and_inputs_give_the_same_future_also_after_a_journey(
    state: Any, ticks: list[list[PendingInput]]
) -> None:
    here, there = state, state
    for pushes in ticks:
        here = BALLS.step(here, pushes, PERIOD_S)
        there = Balls().step(cbor2.loads(cbor2.dumps(there)), pushes, PERIOD_S)
    assert here == there


@given(STATES, PUSHES)
def test_a_step_leaves_the_state_before_it_alone(state: Any, pushes: list[PendingInput]) -> None:
    before = cbor2.dumps(state)
    BALLS.step(state, pushes, PERIOD_S)
    assert cbor2.dumps(state) == before


def test_a_push_changes_the_speed_and_the_speed_the_place() -> None:
    state = BALLS.spawn("ball", {"p": [0, 0, BOX_UM // 2]})
    assert BALLS.step(state, [push(1_000_000, 0, 0)], PERIOD_S)["p"] == [50_000, 0, BOX_UM // 2 - 24_525]


def test_inputs_of_one_tick_add_up() -> None:
    state = BALLS.spawn("ball", {})
    both = BALLS.step(state, [push(10, 20, 30), push(1, 2, 3, seq=2)], PERIOD_S)
    once = BALLS.step(state, [push(11, 22, 33)], PERIOD_S)
    assert (both["p"], both["v"], both["pushed"]) == (once["p"], once["v"], once["pushed"])


def test_a_wall_throws_back_nine_tenths() -> None:
    state = BALLS.spawn("ball", {"p": [10, BOX_UM - 10, 0], "v": [-1000, 1000, 0]})
    after = BALLS.step(state, [], PERIOD_S)
    assert after["v"][:2] == [900, -900]
    assert after["p"][:2] == [40, BOX_UM - 40]


@given(STATES, st.binary(max_size=10))
def test_an_input_that_is_no_push_counts_and_pushes_nothing(state: Any, data: bytes) -> None:
    try:
        decoded = cbor2.loads(data)
    except Exception:
        decoded = None
    if not isinstance(decoded, list) or len(decoded) != 3:
        after = BALLS.step(state, [PendingInput("alpha.ada", 1, data)], PERIOD_S)
        assert after == BALLS.step(state, [], PERIOD_S) | {"pushes": 1}


@pytest.mark.parametrize(
    "nonsense",
    [
        [1, 2],
        [1, 2, 3, 4],
        [1, 2, "3"],
        [1, 2, 3.0],
        [True, 2, 3],
        [MAX_SPEED_UM_S + 1, 0, 0],
        [1 << 4000, 0, 0],
        {"0": 1},
        None,
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_push_is_three_whole_numbers_within_reason(nonsense: Any) -> None:
    state = BALLS.spawn("ball", {})
    item = PendingInput("alpha.ada", 1, cbor2.dumps(nonsense))
    assert BALLS.step(state, [item], PERIOD_S) == BALLS.step(state, [], PERIOD_S) | {"pushes": 1}


@pytest.mark.parametrize("levels", [3, 28, 200])
def test_a_push_that_is_short_and_would_be_endless_is_none(levels: int) -> None:
    state = BALLS.spawn("ball", {})
    item = PendingInput("alpha.ada", 1, laughs(levels))
    assert BALLS.step(state, [item], PERIOD_S) == BALLS.step(state, [], PERIOD_S) | {"pushes": 1}


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("cube", {}),
        ("ball", {"p": [0, 0]}),
        ("ball", {"p": [0, 0, BOX_UM + 1]}),
        ("ball", {"v": "fast"}),
        ("ball", {"v": [True, 0, 0]}),
        ("ball", {"ballast": True}),
        ("ball", {"ballast": -1}),
        ("ball", {"ballast": 1 << 27}),
        ("ball", {"ballast": "heavy"}),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_not_spawned(kind: str, params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"balls|expected|ballast"):
        BALLS.spawn(kind, params)


def test_ballast_makes_the_state_as_big_as_wanted_and_changes_nothing_else() -> None:
    light, heavy = BALLS.spawn("ball", {}), BALLS.spawn("ball", {"ballast": 1000})
    assert len(heavy["ballast"]) == 1000
    light, heavy = BALLS.step(light, [], PERIOD_S), BALLS.step(heavy, [], PERIOD_S)
    assert (heavy["p"], heavy["v"]) == (light["p"], light["v"])
    assert len(heavy["ballast"]) == 1000


def test_balls_go_where_they_are_told() -> None:
    assert BALLS.destination(BALLS.spawn("ball", {}), "alpha.s1", 5) is None


def test_the_world_itself_counts_and_adds_up_what_reached_it() -> None:
    state = BALLS.spawn("ball", {})
    pushes = [[1, -2, 3], [10, 20, 30]]
    inputs = [PendingInput("alpha.ada", n, cbor2.dumps(push)) for n, push in enumerate(pushes, start=1)]
    state = BALLS.step(BALLS.step(state, inputs, 0.05), [PendingInput("alpha.ada", 3, b"no push")], 0.05)
    assert (state["pushes"], state["pushed"]) == (3, [11, 18, 33])
