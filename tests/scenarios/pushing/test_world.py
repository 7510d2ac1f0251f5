"""The floor: robots go where they are driven, boxes give way, on either side of a border."""

import json
from collections.abc import Sequence
from typing import Any

import cbor2
import pytest

from batonpass.authority.fence import Fence
from batonpass.scenarios.pushing.picture import Sighting, drawn
from batonpass.scenarios.pushing.run import PushReport
from batonpass.scenarios.pushing.world import BOX, ROBOT, SIZE_MM, Floor
from batonpass.simserver.world.neighbourhood import Neighbour
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import NOTHING_CARRIED, Step

FLOOR = Floor(["alpha.s1", "alpha.s2"])


class Beside:
    """What a step sees: one other thing, here or as a ghost."""

    def __init__(self, other: dict[str, Any], server: str = "") -> None:
        at = tuple(map(float, other["at"]))
        self._other = Neighbour("alpha.other", at, other, Fence(1), 1, server)

    def near(self, position: Sequence[float], radius: float, but: str = "") -> tuple[Neighbour, ...]:
        return () if self._other.is_ghost or not self._is_close(position, radius) else (self._other,)

    def ghosts(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        return (self._other,) if self._other.is_ghost and self._is_close(position, radius) else ()

    def _is_close(self, position: Sequence[float], radius: float) -> bool:
        return abs(position[0] - self._other.position[0]) <= radius


def stepped(state: dict[str, Any], beside: Beside, *data: Any) -> tuple[dict[str, Any], Step]:
    step = Step(NOTHING_CARRIED, 1, None, "alpha.me", beside)
    inputs = [PendingInput("alpha.ada", number, cbor2.dumps(one)) for number, one in enumerate(data, 1)]
    return FLOOR.advance(state, inputs, 0.05, step), step


@pytest.mark.parametrize("server", ["", "alpha.s2"])
def test_a_box_gives_way_to_a_robot_of_this_server_and_to_the_ghost_of_one(server: str) -> None:
    box, robot = FLOOR.spawn(BOX, {"at": [5000, 0]}), FLOOR.spawn(ROBOT, {"at": [4600, 0]})
    after, _ = stepped(box, Beside(robot, server))
    assert after["at"] == [4600 + SIZE_MM, 0]


def test_a_robot_goes_on_and_says_which_box_it_touches() -> None:
    robot, box = FLOOR.spawn(ROBOT, {"at": [4450, 0]}), FLOOR.spawn(BOX, {"at": [5000, 0]})
    after, step = stepped(robot, Beside(box, "alpha.s2"), 60)
    assert (after["at"], step.touched) == ([4510, 0], ("alpha.other",))
    assert stepped(after, Beside(box, "alpha.s2"))[0]["at"] == [4570, 0]


@pytest.mark.parametrize("data", [101, "fast", True, None, [1]])
def test_a_stride_that_makes_no_sense_changes_nothing(data: Any) -> None:
    robot = FLOOR.spawn(ROBOT, {"at": [0, 0]})
    assert stepped(robot, Beside(FLOOR.spawn(BOX, {"at": [9000, 0]})), data)[0] == robot


def test_each_half_is_a_servers_with_a_margin() -> None:
    def wanted(x: int, here: str) -> str | None:
        return FLOOR.destination({"at": [x, 0]}, here, 1)

    assert [wanted(x, "alpha.s1") for x in (5000, 6500, 6501)] == [None, None, "alpha.s2"]
    assert [wanted(x, "alpha.s2") for x in (5000, 3500, 3499)] == [None, None, "alpha.s1"]


def test_the_picture_has_a_line_for_every_stretch_on_a_server() -> None:
    trail = [Sighting(0.0, 5000, "alpha.s2"), Sighting(1.0, 5100, "alpha.s1"), Sighting(2.0, 5200, "alpha.s1")]
    picture = drawn({"alpha.box-1": trail, "alpha.robot-1a": trail}, ["alpha.s1", "alpha.s2"])
    assert picture.count("<polyline") == 3
    assert picture.startswith("<svg")
    assert picture.endswith("</svg>\n")


def test_what_was_seen_is_there_for_programs_but_for_the_trails() -> None:
    trails = {"alpha.box-1": [Sighting(0.0, 5000, "alpha.s2")]}
    report = PushReport(trails, waits_ticks=[3], counts={"contacts": 1}, held={"alpha.box-1": ["alpha.s1"]})
    data = json.loads(json.dumps(report.to_data()))
    assert data["waits_ticks"] == [3]
    assert data["held"] == {"alpha.box-1": ["alpha.s1"]}
    assert data["problems"] == []
    assert "trails" not in data
