"""The floor with bodies of a physics engine: a batch world that goes on elsewhere as it would have here."""

from collections.abc import Mapping, Sequence
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.scenarios.pushing.physics import PhysicsFloor
from batonpass.scenarios.pushing.world import BOX, ROBOT, SIZE_MM
from batonpass.simserver.world.batch import BatchStep
from batonpass.simserver.world.neighbourhood import Neighbour
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import NOTHING_CARRIED, Step

SERVERS = ["alpha.s1", "alpha.s2"]
DT_S = 0.05


class Beyond:
    """Ghosts, wherever one looks."""

    def __init__(self, ghosts: Mapping[str, dict[str, Any]]) -> None:
        self._ghosts = tuple(
            Neighbour(name, tuple(map(float, state["at"])), state, Fence(1), 1, SERVERS[1])
            for name, state in ghosts.items()
        )

    def near(self, position: Sequence[float], radius: float, but: str = "") -> tuple[Neighbour, ...]:
        return ()

    def ghosts(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        return self._ghosts


class Here:
    """A server's part of the floor, and what it has said in the last tick."""

    def __init__(self, things: Mapping[str, dict[str, Any]], here: str = SERVERS[0]) -> None:
        self.floor = PhysicsFloor(SERVERS)
        self.names = list(things)
        self.here = here
        self.touched: dict[str, tuple[str, ...]] = {}
        self.wishes: dict[str, str] = {}
        self.changed: list[str] = []
        for name, state in things.items():
            self.floor.enter(name, state)

    def tick(
        self, strides: Mapping[str, Any] | None = None, ghosts: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        inputs = {name: [PendingInput("alpha.ada", 1, cbor2.dumps(stride))] for name, stride in (strides or {}).items()}
        beyond = Beyond(ghosts or {})
        batch = BatchStep(
            self.here,
            1,
            self.names,
            inputs,
            lambda name: Step(NOTHING_CARRIED, 1, None, name, beyond),
            lambda _name: 0,
        )
        self.changed = list(self.floor.step_all(batch, DT_S))
        self.touched = {name: step.touched for name, step in batch.steps.items()}
        self.wishes = dict(batch.wishes)

    def at(self, name: str) -> float:
        return float(self.floor.encode(name)["at"][0])


def thing(kind: str, x: int, y: int = 0) -> dict[str, Any]:
    return PhysicsFloor(SERVERS).spawn(kind, {"at": [x, y]})


def test_a_robot_pushes_a_box_ahead_and_when_it_stops_all_come_to_rest() -> None:
    here = Here({"robot": thing(ROBOT, 2000), "box": thing(BOX, 2600)})
    here.tick({"robot": 50})
    for _ in range(39):
        here.tick()
    assert here.at("robot") == pytest.approx(2000 + 40 * 50, abs=50)
    assert here.at("box") - here.at("robot") == pytest.approx(SIZE_MM, abs=30)
    here.tick({"robot": 0})
    for _ in range(100):
        here.tick()
    assert here.changed == []


def test_a_box_gives_way_to_the_ghost_of_a_robot() -> None:
    here = Here({"box": thing(BOX, 5000)})
    before = here.at("box")
    here.tick(ghosts={"beyond": thing(ROBOT, 4600) | {"velocity": [1000.0, 0.0]}})
    assert here.at("box") > before
    assert here.touched["box"] == ()


def test_a_robot_says_which_box_beyond_the_border_it_touches() -> None:
    here = Here({"robot": thing(ROBOT, 4500)})
    here.tick(ghosts={"far": thing(BOX, 5500), "close": thing(BOX, 5010), "other": thing(ROBOT, 4000)})
    assert here.touched["robot"] == ("close",)


def test_each_half_is_a_servers_with_a_margin() -> None:
    here = Here({"robot": thing(ROBOT, 6600), "box": thing(BOX, 4000, 2000)})
    here.tick()
    assert here.wishes == {"robot": SERVERS[1]}


def test_nothing_leaves_the_floor() -> None:
    here = Here({"robot": thing(ROBOT, 9000), "box": thing(BOX, 9600)})
    here.tick({"robot": 100})
    for _ in range(60):
        here.tick()
    assert here.at("box") < 10_000 + SIZE_MM


states = st.builds(
    thing, st.sampled_from([ROBOT, BOX]), st.integers(0, 10_000), st.integers(-2000, 2000)
)  # may begin inside each other


@given(things=st.lists(states, min_size=1, max_size=6), strides=st.lists(st.integers(-100, 100), max_size=5))
def test_a_step_that_is_taken_back_changes_nothing_and_what_leaves_enters_as_it_was(
    things: list[dict[str, Any]], strides: list[int]
) -> None:
    here = Here({f"e{number}": state for number, state in enumerate(things)})
    for stride in strides:
        here.tick({"e0": stride})
    before = {name: here.floor.encode(name) for name in here.names}
    here.tick({"e0": 7})
    here.floor.undo()
    assert {name: here.floor.encode(name) for name in here.names} == before
    for name in here.names:
        state = here.floor.leave(name)
        assert state == before[name]
        here.floor.enter(name, state)
        assert here.floor.encode(name) == state


@pytest.mark.parametrize("stride", ["fast", 101, None])
def test_an_input_that_makes_no_sense_changes_nothing(stride: Any) -> None:
    here = Here({"robot": thing(ROBOT, 2000)})
    here.tick({"robot": stride})
    assert here.changed == []
