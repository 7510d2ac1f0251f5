"""A world on virtual time: what it computes, and what of it no server could go on with."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from batonpass.scenarios.simulation.servers.one_by_one import OneByOne
from batonpass.simserver.world.demo_balls import Balls
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step
from batonpass.testing import TickedWorld, WorldFault
from tests.client.walled_world import Robots, SleepyRobots

ONE = "alpha.one"


def test_an_hour_goes_by_in_a_moment_and_every_time_the_same() -> None:
    states = []
    for _ in range(2):
        world = TickedWorld(Balls())
        world.spawn(ONE, "ball", p=[0, 0, 0], v=[1_000_000, 0, 0])
        world.run(60.0)
        states.append(world.state(ONE))
        assert world.now_s == pytest.approx(60.0)
    assert states[0] == states[1]


def test_inputs_are_applied_once_by_the_next_tick_and_go_along_with_a_hand_over() -> None:
    world = TickedWorld(Robots())
    world.spawn(ONE, "robot", owner="alpha.ada")
    assert [world.give(ONE, bytes((1, 0))), world.give(ONE, bytes((2, 0)))] == [1, 2]
    world.hand_over(ONE, "alpha.s2")
    world.tick(3)
    assert world.server(ONE) == "alpha.s2"
    assert (world.state(ONE)["at"], world.state(ONE)["inputs"]) == ([6, 0], 2)
    assert world.seen(ONE) == {"at": [6, 0], "inputs": 2}
    assert world.seen(ONE, "alpha.ada")["owner"] == "alpha.ada"
    assert world.position(ONE) == [6, 0]


def test_the_world_sends_entities_where_it_wants_them_and_lets_them_sleep() -> None:
    class Border(SleepyRobots):
        def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
            return "alpha.s2" if state["at"][0] >= 5 else None

    world = TickedWorld(Border())
    world.spawn(ONE, "robot", speed=[1, 0])
    world.tick(4)
    assert (world.server(ONE), world.may_sleep(ONE)) == ("alpha.s1", False)
    world.give(ONE, bytes(2))
    world.tick()
    assert world.may_sleep(ONE)
    world.give(ONE, bytes((1, 0)))
    world.tick()
    assert world.server(ONE) == "alpha.s2"


class Faulty:
    """A world that goes wrong as a test says."""

    def __init__(self, wrong: Callable[[Any], Any]) -> None:
        self.wrong = wrong

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"n": 0, "parts": [1]}

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        return self.wrong(state)

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        return None


def changed(state: Any) -> Any:
    state["parts"].append(2)
    return dict(state)


def test_what_no_server_could_go_on_with_is_named() -> None:
    drawn = iter(range(100))
    faults: dict[str, Callable[[Any], Any]] = {
        "cannot travel": lambda state: state | {"file": object()},
        "gave None": lambda state: None,
        "has changed the state": changed,
        "the same step": lambda state: state | {"n": next(drawn)},
    }
    for text, wrong in faults.items():
        world = TickedWorld(Faulty(wrong))
        world.spawn(ONE, "any")
        with pytest.raises(WorldFault, match=text):
            world.tick()


def test_what_is_no_world_is_refused_at_once() -> None:
    with pytest.raises(WorldFault, match="it has no"):
        TickedWorld(object())  # type: ignore[arg-type]


def test_a_later_version_takes_the_states_of_the_former_or_says_why_not() -> None:
    class Later(Robots):
        schema_version = 2

        def migrate(self, kind: str, state: Any, from_version: int) -> Any:
            if state["inputs"]:
                raise ValueError("not those with inputs")
            return state | {"fuel": 9}

    world = TickedWorld(Robots())
    world.spawn(ONE, "robot")
    world.upgrade(Later())
    assert world.state(ONE)["fuel"] == 9
    world = TickedWorld(Robots())
    world.spawn(ONE, "robot")
    world.give(ONE, bytes(2))
    world.tick()
    with pytest.raises(WorldFault, match="not those with inputs"):
        world.upgrade(Later())


def test_chance_and_timers_are_those_of_servers() -> None:
    class Dice:
        def spawn(self, kind: str, params: dict[str, Any]) -> Any:
            return {"count": 0}

        def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
            if "throw" in step.due or step.tick == 1:
                step.timers.set("throw", 20)
                return {"count": step.random.below(6) + 1}
            return state

        def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
            return None

    thrown = []
    for _ in range(2):
        world = TickedWorld(Dice())  # type: ignore[arg-type]
        world.spawn(ONE, "die")
        seen = []
        for _ in range(5):
            world.run(1.0)
            seen.append(world.state(ONE)["count"])
        thrown.append(seen)
    assert thrown[0] == thrown[1]
    assert set(thrown[0]) <= set(range(1, 7))


class Gossips:
    """Each input is sent on to the entity that it names, and so is what comes, while it names others."""

    takes_messages = True

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"had": [], "refused": []}

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        raise NotImplementedError

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        said = [item.data for item in inputs] + [one.data for one in step.messages]
        for data in said:
            to, _, rest = data.partition(b" ")
            if rest:
                step.send(to.decode(), rest)
        had = [[one.sender, one.data] for one in step.messages]
        refused = [[one.to, one.reason.value] for one in step.refused]
        return {"had": state["had"] + had, "refused": state["refused"] + refused}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        return "alpha.s2" if len(state["had"]) == 1 else None


def test_messages_are_there_with_the_next_tick_and_go_along() -> None:
    world = TickedWorld(Gossips())
    for name in ("alpha.a", "alpha.b", "alpha.c"):
        world.spawn(name, "gossip")
    world.give("alpha.a", b"alpha.b alpha.c alpha.nobody hello")
    world.tick(5)
    assert world.state("alpha.b") == {"had": [["alpha.a", b"alpha.c alpha.nobody hello"]], "refused": []}
    assert world.state("alpha.c") == {
        "had": [["alpha.b", b"alpha.nobody hello"]],
        "refused": [["alpha.nobody", "no_such_entity"]],
    }
    assert world.server("alpha.b") == "alpha.s2"
    world.give("alpha.a", b"alpha.b again")
    world.tick(2)
    assert world.state("alpha.b")["had"][1] == ["alpha.a", b"again"]


def test_a_world_that_sends_has_to_say_so_and_to_send_the_same_again() -> None:
    silent = Gossips()
    silent.takes_messages = False
    world = TickedWorld(silent)
    world.spawn("alpha.a", "gossip")
    world.give("alpha.a", b"alpha.a x")
    with pytest.raises(WorldFault, match="takes_messages"):
        world.tick()


class Walls:
    """Discs on a line that stop at whatever they touch, here or as a ghost, and say so of ghosts."""

    reach = 4.0

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"at": params["at"], "fast": params.get("fast", 0.0), "saw": []}

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        at = state["at"] + state["fast"] * dt_s
        ghosts = step.ghosts([at], 1.0)
        for ghost in ghosts:
            step.touch(ghost.entity)
        met = [*step.near([at], 1.0), *ghosts]
        saw = [[one.entity, one.server, one.state["at"]] for one in met]
        return {**state, "at": state["at"] if met else at, "saw": saw}

    def position(self, state: Any) -> Any:
        return [state["at"]]


def ticked(world: Any) -> TickedWorld:
    """Of a world that has `advance` alone."""
    return TickedWorld(world)


@pytest.mark.parametrize("server", ["alpha.s1", "alpha.s2"])
def test_entities_meet_those_of_their_server_and_ghosts_as_the_last_round_left_them(server: str) -> None:
    world = ticked(Walls())
    world.spawn("alpha.a", "disc", at=0.0, fast=20.0)
    world.spawn("alpha.b", "disc", server=server, at=3.0, fast=-20.0)
    world.tick(2)
    assert (world.state("alpha.a")["at"], world.state("alpha.b")["at"]) == (1.0, 2.0)
    elsewhere = "" if server == "alpha.s1" else server
    assert world.state("alpha.a")["saw"] == [["alpha.b", elsewhere, 2.0]], "which is not where it goes in this round"
    assert world.touched("alpha.a") == (("alpha.b",) if elsewhere else ())


def test_ghosts_are_of_what_is_within_reach_of_an_entity_of_the_server() -> None:
    class Far(Walls):
        def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
            return {**state, "saw": [one.entity for one in step.ghosts([0.0], 100.0)]}

    world = ticked(Far())
    world.spawn("alpha.a", "disc", at=0.0)
    world.spawn("alpha.b", "disc", server="alpha.s2", at=4.0)
    world.spawn("alpha.c", "disc", server="alpha.s2", at=4.1)
    world.tick()
    assert world.state("alpha.a")["saw"] == ["alpha.b"]
    world.spawn("alpha.d", "disc", at=8.1)
    world.tick()
    assert world.state("alpha.a")["saw"] == ["alpha.b", "alpha.c"]


@pytest.mark.parametrize("server", ["alpha.s1", "alpha.s2"])
def test_a_world_that_changes_what_it_was_shown_is_found_out(server: str) -> None:
    class Pushes(Walls):
        def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
            for other in (*step.near([state["at"]], 2.0), *step.ghosts([state["at"]], 2.0)):
                other.state["at"] += 0.5
            return state

    world = ticked(Pushes())
    world.spawn("alpha.a", "disc", at=0.0)
    world.spawn("alpha.b", "disc", server=server, at=1.0)
    with pytest.raises(WorldFault, match=r"alpha\.a: the step of tick 1 has changed the state of alpha\.b"):
        world.tick()


@pytest.mark.parametrize(("said", "why"), [("here", "position"), (None, "")])
def test_a_place_that_is_none_is_a_fault_and_nowhere_is_no_place(said: Any, why: str) -> None:
    class Lost(Walls):
        def position(self, state: Any) -> Any:
            return said

    world = ticked(Lost())
    world.spawn("alpha.a", "disc", at=0.0)
    world.spawn("alpha.b", "disc", at=0.0)
    if why:
        with pytest.raises(WorldFault, match=why):
            world.tick()
    else:
        world.tick()
        assert world.state("alpha.a")["saw"] == []


def test_a_world_that_does_not_look_around_is_told_so() -> None:
    class Blind(Walls):
        reach = None  # type: ignore[assignment]

    world = ticked(Blind())
    world.spawn("alpha.a", "disc", at=0.0)
    with pytest.raises(ValueError, match="it lacks one"):
        world.tick()
    with pytest.raises(WorldFault, match="batch world"):
        ticked(OneByOne(Walls()))
