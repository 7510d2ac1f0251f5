"""The arena: robots stay on the floor, go where they are steered, and to the server whose floor they are on."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.scenarios.arena.world import (
    DEADMAN_TICKS,
    DEPTH_MM,
    HYSTERESIS_MM,
    MAX_SPEED_MM_S,
    MIN_STAY_TICKS,
    RADIUS_MM,
    TILE,
    TILES,
    WIDTH_MM,
    Arena,
    tile_params,
)
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Carried, Step
from batonpass.simserver.world.validation import flaw
from tests.budget import examples

SERVERS = ["alpha.s1", "alpha.s2", "alpha.s3"]
DT_S = 0.05


class Driven:
    """A robot or tile that is ticked as servers do."""

    def __init__(self, world: Arena, kind: str = "robot", **params: Any) -> None:
        self.world, self.tick = world, 0
        self.state = world.spawn(kind, params)
        self.carried = Carried.of_new("alpha.robot-1")

    def step(self, *inputs: bytes) -> Any:
        self.tick += 1
        step = Step(self.carried, self.tick, entity="alpha.robot-1")
        given_now = [PendingInput("alpha.ada", number, data) for number, data in enumerate(inputs, 1)]
        self.state = self.world.advance(self.state, given_now, DT_S, step)
        self.carried = step.carried()
        return self.state


def test_it_is_a_world() -> None:
    assert flaw(Arena(SERVERS)) == ""


@given(st.lists(st.binary(max_size=3), max_size=60), st.integers(RADIUS_MM, WIDTH_MM - RADIUS_MM))
@settings(max_examples=examples(200))
def test_a_driven_robot_stays_on_the_floor_and_within_its_speed(inputs: list[bytes], across_mm: int) -> None:
    robot = Driven(Arena(SERVERS), p=[across_mm, DEPTH_MM // 2], driver="alpha.ada")
    for data in inputs:
        state = robot.step(data)
        assert RADIUS_MM <= state["p"][0] <= WIDTH_MM - RADIUS_MM
        assert RADIUS_MM <= state["p"][1] <= DEPTH_MM - RADIUS_MM
        assert state["w"][0] ** 2 + state["w"][1] ** 2 <= MAX_SPEED_MM_S**2
    assert robot.state["n"] == len(inputs)


@pytest.mark.parametrize(("data", "sign"), [(b"\x7f\x00", (1, 0)), (b"\x81\x00", (-1, 0)), (b"\x00\x7f", (0, 1))])
def test_a_robot_goes_where_it_is_steered_and_brakes_when_it_hears_nothing(data: bytes, sign: tuple[int, int]) -> None:
    robot = Driven(Arena(SERVERS), driver="alpha.ada")
    before = robot.state["p"]
    robot.step(data)
    for _ in range(10):
        robot.step()
    moved = [now - then for now, then in zip(robot.state["p"], before, strict=True)]
    assert [(each > 0) - (each < 0) for each in moved] == list(sign)
    for _ in range(2 * DEADMAN_TICKS):
        robot.step()
    assert robot.state["v"] == [0, 0]


def test_a_robot_that_nobody_drives_wanders_over_all_of_the_floor() -> None:
    robot = Driven(Arena(SERVERS))
    strips = {robot.world.destination(robot.step(), "alpha.s9", MIN_STAY_TICKS) for _ in range(4_000)}
    assert strips == set(SERVERS)


def test_a_robot_changes_its_server_beyond_the_border_and_not_at_once() -> None:
    world, border_mm = Arena(SERVERS), WIDTH_MM // 3
    states = {by: world.spawn("robot", {"p": [border_mm + by, DEPTH_MM // 2]}) for by in (-1, 1, HYSTERESIS_MM + 1)}
    found = {by: world.destination(state, "alpha.s1", MIN_STAY_TICKS) for by, state in states.items()}
    assert found == {-1: None, 1: None, HYSTERESIS_MM + 1: "alpha.s2"}
    assert world.destination(states[HYSTERESIS_MM + 1], "alpha.s1", MIN_STAY_TICKS - 1) is None
    assert world.destination(states[-1], "alpha.s3", MIN_STAY_TICKS) == "alpha.s1"


def test_tiles_belong_to_the_server_of_their_strip() -> None:
    world = Arena(SERVERS)
    tiles = [Driven(world, TILE, **params) for params in tile_params()]
    assert len(tiles) == TILES[0] * TILES[1]
    owners = [world.destination(tile.step(), "alpha.s9", 0) for tile in tiles]
    assert [owners.count(server) for server in SERVERS] == [len(tiles) // 3] * 3
    assert all(world.destination(tile.state, str(owner), 0) is None for tile, owner in zip(tiles, owners, strict=True))


def test_only_its_driver_sees_how_many_inputs_a_robot_has_had() -> None:
    world = Arena(SERVERS)
    state = world.spawn("robot", {"driver": "alpha.ada"})
    assert world.view(state, "alpha.ada").keys() - world.view(state, "alpha.bob").keys() == {"n"}
    assert world.view(state, "") == world.view(state, "alpha.bob")


@pytest.mark.parametrize(
    ("kind", "params", "why"),
    [
        ("ball", {}, "no 'ball'"),
        ("tile", {}, "a column and a row"),
        ("tile", {"t": [TILES[0], 0]}, "from 0 to"),
        ("tile", {"t": [True, 0]}, "from 0 to"),
        ("robot", {"p": [0, 0]}, "from 500 to"),
        ("robot", {"p": "here"}, "on the floor"),
        ("robot", {"driver": "nobody at all"}, "nobody at all"),
    ],
)
def test_what_makes_no_sense_is_not_spawned(kind: str, params: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Arena(SERVERS).spawn(kind, params)


@pytest.mark.parametrize("servers", [[], ["alpha.s1", "alpha.s1"], ["no name"]])
def test_an_arena_needs_servers(servers: list[str]) -> None:
    with pytest.raises(ValueError, match=r"needs a server|no name"):
        Arena(servers)
