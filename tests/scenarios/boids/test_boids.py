"""Boids: arrays that step alike wherever their rows are, and a batch world that goes on exactly where it was."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.scenarios.boids.flock import CELL_M, FASTEST_M_PER_S, SLOWEST_M_PER_S, scattered, size_for, stepped
from batonpass.scenarios.boids.world import PUSH, Boids
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.world.validation import flaw
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import ADA, Stage

NOBODY: Any = None


@given(count=st.integers(0, 60), seed=st.integers(0, 1000))
def test_boids_stay_in_their_space_at_their_speed_and_the_arrays_before_a_step_are_as_they_were(
    count: int, seed: int
) -> None:
    size_m = size_for(count)
    places, velocities = scattered(count, size_m, seed)
    before = places.copy(), velocities.copy()
    after, faster = stepped(places, velocities, size_m, 0.05)
    assert np.array_equal(places, before[0])
    assert np.array_equal(velocities, before[1])
    assert after.shape == faster.shape == (count, 2)
    assert bool(((after >= 0) & (after < size_m)).all())
    speeds = np.hypot(faster[:, 0], faster[:, 1])
    assert bool(((speeds > SLOWEST_M_PER_S - 1e-6) & (speeds < FASTEST_M_PER_S + 1e-6)).all())


def test_a_boid_follows_those_around_it_and_nobody_else() -> None:
    size_m = 10 * CELL_M
    places = np.array([[6.0, 6.0], [6.5, 6.0], [30.0, 30.0]])
    velocities = np.array([[4.0, 0.0], [0.0, 4.0], [0.0, -4.0]])
    _, after = stepped(places, velocities, size_m, 0.05)
    assert after[0, 1] > 0.0, "it turns to where the other one flies"
    assert np.allclose(after[2], velocities[2]), "it is alone"


class Server:
    """A simulation server's entities, with a flock."""

    def __init__(self, name: str = "alpha.s1") -> None:
        self.world = Boids(100, ballast=5)
        self.stage = Stage(NOBODY, name, self.world)  # type: ignore[arg-type]
        self.holdings = Holdings(self.stage.environment, Written())

    def spawn(self, number: int) -> Any:
        place, velocity = scattered(100, self.world.size_m)
        params = {"place": place[number].tolist(), "velocity": velocity[number].tolist()}
        return self.holdings.spawn(f"alpha.b{number}", "boid", params, Fence(1), Ownership(ADA, 1)).life

    def tick(self) -> None:
        assert self.holdings.batch is not None
        self.holdings.batch.tick()


@given(leaves=st.lists(st.integers(0, 19), unique=True, max_size=10), ticks=st.integers(1, 5))
def test_boids_that_leave_and_come_back_fly_on_as_if_they_had_stayed(leaves: list[int], ticks: int) -> None:
    stays, goes = Server(), Server()
    for server in (stays, goes):
        for number in range(20):
            server.spawn(number)
        for _ in range(ticks):
            server.tick()
    for number in leaves:
        holding = goes.holdings.get(f"alpha.b{number}")
        assert holding is not None
        frozen = holding.life.freeze()
        assert frozen is not None
        goes.holdings.leave(holding.id, "alpha.s2", Fence(2))
        life = goes.holdings.start(holding.id, Fence(3), EntitySnapshot.decode(frozen.state)).life
        assert life.tick == ticks
    for server in (stays, goes):
        server.tick()
    states = [
        [server.holdings.get(f"alpha.b{number}").life.world for number in range(20)]  # type: ignore[union-attr]
        for server in (stays, goes)
    ]
    # Sums over a cell are in the order of the rows, so they may differ in the last digits.
    for one, other in zip(*states, strict=True):
        assert np.allclose([*one["p"], *one["v"]], [*other["p"], *other["v"]], atol=1e-9)
        assert one["b"] == other["b"] == bytes(5)


def test_a_push_is_an_input_and_what_is_no_push_does_nothing() -> None:
    pushed, left = Server(), Server()
    for server in (pushed, left):
        server.spawn(0)
    pushed.holdings.get("alpha.b0").life.take_input(ADA, 1, 1, PUSH.pack(100, 0))  # type: ignore[union-attr]
    left.holdings.get("alpha.b0").life.take_input(ADA, 1, 1, b"what?")  # type: ignore[union-attr]
    for server in (pushed, left):
        server.tick()
        assert [ack.applied for _, ack in server.stage.acks] == [1]
    assert pushed.world.velocities[0, 0] != left.world.velocities[0, 0]


@pytest.mark.parametrize("params", [{"place": [1.0]}, {"velocity": ["x", 1]}, {"place": [float("nan"), 0.0]}])
def test_a_boid_begins_with_two_numbers_each(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="two numbers"):
        Boids().spawn("boid", params)
    assert flaw(Boids()) == ""


def test_nothing_but_this_world_needs_numpy() -> None:
    modules = "batonpass.simserver.server.main, batonpass.scenarios.cli.main, batonpass.scenarios.bench.worlds.command"
    program = f"import sys; sys.modules['numpy'] = None; import {modules}"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
