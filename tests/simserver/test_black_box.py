"""Whoever is simulated when a server dies is known in its next life, and nobody else."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.system import System
from authority.epoch import Fence
from authority.ownership import Ownership
from simserver.black_box import MAX_DEATHS, MAX_ENTITIES, REMEMBERED_S, TOO_OFTEN, BlackBox
from simserver.holdings import Holdings
from tests.simserver.stage import ADA, BALL, Stage, Tally, inspect, ticks
from tests.simserver.test_holdings import Written

names = st.from_regex(r"[a-z][a-z0-9]{0,8}\.[a-z][a-z0-9-]{0,20}", fullmatch=True)


@given(ticked=st.lists(names), last=names, is_at_work=st.booleans())
def test_of_all_that_were_simulated_the_one_at_work_is_known_and_only_once(
    ticked: list[str], last: str, is_at_work: bool
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        box = BlackBox(directory, 0.0)
        for entity in ticked:
            with box.simulating(entity):
                pass
        box.enter(last)
        if not is_at_work:
            box.leave()
        next_life = BlackBox(directory, 1.0)
        assert next_life.deaths(last) == is_at_work
        assert not any(next_life.deaths(entity) for entity in ticked if entity != last)
        assert BlackBox(directory, 2.0).deaths(last) == is_at_work, "its second life died of nobody"


def test_a_process_that_is_killed_in_a_step_leaves_the_name(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from simserver.black_box import BlackBox\n"
        "with BlackBox(pathlib.Path(sys.argv[1])).simulating('alpha.ball'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert BlackBox(tmp_path, 1.0).deaths(BALL) == 1


def test_one_death_is_bad_luck_and_two_are_too_many_wherever_they_were(tmp_path: Path) -> None:
    box = BlackBox(tmp_path, 0.0)
    for life in range(1, TOO_OFTEN + 1):
        assert not box.verdict(BALL)
        box.enter(BALL)
        box = BlackBox(tmp_path, float(life))
        assert box.deaths(BALL) == life
    assert "died 2 times" in box.verdict(BALL)
    box.forget(BALL)
    assert not box.verdict(BALL)
    assert not BlackBox(tmp_path, 9.0).verdict(BALL), "nor in its next life"
    box.heard(BALL, TOO_OFTEN)
    assert box.verdict(BALL)
    box.heard("alpha.other", 0)
    assert not box.verdict("alpha.other")


def test_deaths_are_remembered_for_an_hour(tmp_path: Path) -> None:
    BlackBox(tmp_path, 0.0).enter(BALL)
    assert BlackBox(tmp_path, 10.0).deaths(BALL) == 1
    assert BlackBox(tmp_path, 10.0 + REMEMBERED_S - 1).deaths(BALL) == 1
    assert BlackBox(tmp_path, 10.0 + REMEMBERED_S).deaths(BALL) == 0


def test_what_is_remembered_has_bounds(tmp_path: Path) -> None:
    for number in range(MAX_ENTITIES + 2):
        BlackBox(tmp_path, 0.0).enter(f"alpha.e{number}")
    box = BlackBox(tmp_path, 0.0)
    assert (box.deaths("alpha.e0"), box.deaths("alpha.e1"), box.deaths("alpha.e2")) == (0, 0, 1)
    for _ in range(MAX_DEATHS + 2):
        BlackBox(tmp_path, 0.0).enter(BALL)
    assert BlackBox(tmp_path, 0.0).deaths(BALL) == MAX_DEATHS


@pytest.mark.parametrize("left", [b"", b"{", b"[1]", b'{"alpha.ball": 3}', b'{"alpha.ball": ["x"]}', b"\xff"])
def test_files_that_are_not_what_was_written_are_nothing(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "deaths.json").write_bytes(left)
    (tmp_path / "simulating").write_bytes(b"\x04\xff\xff\xff\xff" + bytes(300))
    box = BlackBox(tmp_path, 0.0)
    assert not box.deaths(BALL)
    box.enter(BALL)
    assert BlackBox(tmp_path, 0.0).deaths(BALL) == 1


def test_a_server_that_cannot_have_the_files_simulates_without(tmp_path: Path) -> None:
    (tmp_path / "simulating").mkdir()
    box = BlackBox(tmp_path, 0.0)
    with box.simulating(BALL):
        pass
    assert not box.verdict(BALL)


# --- in a server ------------------------------------------------------------------------------------------------------


class Telling(Tally):
    """A world that looks who is said to be simulated while it is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.stage: Any = None
        self.at_work: list[int] = []

    def step(self, state: Any, inputs: Any, dt_s: float) -> Any:
        self.at_work.append(self.stage.environment.black_box._page[0])
        return super().step(state, inputs, dt_s)


@pytest.mark.parametrize("fails", ["", "step", "destination"])
async def test_it_is_written_down_before_the_world_is_at_work_and_taken_back_after(system: System, fails: str) -> None:
    world = Telling()
    stage = world.stage = Stage(system, world=world)
    actor = stage.start(stage.fresh("tally"))
    world.fails = fails
    ticks(actor)
    assert bool((await inspect(actor))["broken"]) == bool(fails)
    assert world.at_work == [len(BALL)]
    assert stage.environment.black_box._page[0] == 0


async def test_failures_row_41_of_whom_servers_died_too_often_stands_still_here_until_it_is_released(
    system: System,
) -> None:
    stage = Stage(system)
    holdings = Holdings(stage.environment, Written())
    holdings.black_box.heard(BALL, TOO_OFTEN)
    life = holdings.spawn(BALL, "ball", {}, Fence(1), Ownership(ADA, 1)).life
    assert life.quarantine == "servers died 2 times while they simulated it"
    assert life.release()
    assert (life.broken, holdings.black_box.verdict(BALL)) == ("", "")
