"""Whoever is simulated when a server dies is known in its next life, and nobody else."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.core.system import System
from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.recovery import MAX_DEATHS
from batonpass.simserver.entity.crash_guard import MAX_ENTITIES, MAX_HEARD, REMEMBERED_S, TOO_OFTEN, CrashGuard
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.table import Holdings
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import ADA, BALL, Stage, Tally, inspect, ticks

DIED_TWICE = "servers died, or lost their leases, 2 times while they simulated it"

names = st.from_regex(r"[a-z][a-z0-9]{0,8}\.[a-z][a-z0-9-]{0,20}", fullmatch=True)


def started(directory: Path, at_s: float = 0.0) -> CrashGuard:
    return CrashGuard(directory, lambda: at_s)


@given(ticked=st.lists(names), last=names, epoch=st.integers(0, MAX_EPOCH), is_at_work=st.booleans())
def test_of_all_that_were_simulated_the_one_at_work_is_known_and_only_once(
    ticked: list[str], last: str, epoch: int, is_at_work: bool
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        box = started(directory)
        for entity in ticked:
            with box.simulating(entity, 7):
                pass
        box.enter(last, epoch)
        if not is_at_work:
            box.leave()
        next_life = started(directory, 1.0)
        assert next_life.deaths(last) == [epoch] * is_at_work
        assert not any(next_life.deaths(entity) for entity in ticked if entity != last)
        assert started(directory, 2.0).deaths(last) == [epoch] * is_at_work, "its second life died of nobody"


def test_a_process_that_is_killed_in_a_step_leaves_the_name(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from batonpass.simserver.entity.crash_guard import CrashGuard\n"
        "with CrashGuard(pathlib.Path(sys.argv[1]), float).simulating('alpha.ball', 3):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert started(tmp_path, 1.0).deaths(BALL) == [3]


def test_one_death_is_bad_luck_and_two_are_too_many_wherever_they_were(tmp_path: Path) -> None:
    box = started(tmp_path)
    for life in range(1, TOO_OFTEN + 1):
        assert not box.verdict(BALL)
        box.enter(BALL, life)
        box = started(tmp_path, float(life))
        assert box.deaths(BALL) == list(range(1, life + 1))
    assert box.verdict(BALL) == DIED_TWICE
    box.forget(BALL)
    assert not box.verdict(BALL)
    assert not started(tmp_path, 9.0).verdict(BALL), "nor in its next life"
    box.heard(BALL, [1] * TOO_OFTEN)
    assert box.verdict(BALL)
    box.heard("alpha.other", [])
    assert not box.verdict("alpha.other")


def test_deaths_are_remembered_for_an_hour(tmp_path: Path) -> None:
    started(tmp_path).enter(BALL, 3)
    assert started(tmp_path, 10.0).deaths(BALL) == [3]
    assert started(tmp_path, 10.0 + REMEMBERED_S - 1).deaths(BALL) == [3]
    assert started(tmp_path, 10.0 + REMEMBERED_S).deaths(BALL) == []


def test_also_by_a_server_that_has_run_for_longer_and_of_what_it_has_heard(tmp_path: Path) -> None:
    started(tmp_path).enter(BALL, 3)
    now = SimpleNamespace(s=10.0)
    box = CrashGuard(tmp_path, lambda: now.s)
    box.heard("alpha.other", [3, 5])
    for now.s, is_remembered in ((10.0 + REMEMBERED_S - 1, True), (10.0 + REMEMBERED_S, False)):
        assert bool(box.deaths(BALL)) == bool(box.verdict("alpha.other")) == is_remembered
    box.heard(BALL, [9])
    assert not box.verdict(BALL), "one long ago and one now are not two in an hour"


@pytest.mark.parametrize(("released_epoch", "is_against_it"), [(0, True), (5, True), (6, False), (8, False)])
def test_deaths_under_epochs_before_its_release_count_no_more_whoever_remembers_them(
    tmp_path: Path, released_epoch: int, is_against_it: bool
) -> None:
    """Whoever was down when it was released finds out later, and has not heard of it."""
    for epoch in (3, 5, 7):
        started(tmp_path).enter(BALL, epoch)
    box = started(tmp_path)
    box.heard("alpha.other", [3, 5, 7])
    for entity in (BALL, "alpha.other"):
        assert bool(box.verdict(entity, released_epoch)) == is_against_it


def test_what_is_remembered_has_bounds(tmp_path: Path) -> None:
    for number in range(MAX_ENTITIES + 2):
        started(tmp_path).enter(f"alpha.e{number}", 1)
    box = started(tmp_path)
    assert (box.deaths("alpha.e0"), box.deaths("alpha.e1"), box.deaths("alpha.e2")) == ([], [], [1])
    for epoch in range(MAX_DEATHS + 2):
        started(tmp_path).enter(BALL, epoch)
    assert started(tmp_path).deaths(BALL) == list(range(2, MAX_DEATHS + 2))
    for number in range(MAX_HEARD + 1):
        box.heard(f"alpha.e{number}", [1, 2])
    assert (box.verdict("alpha.e0"), bool(box.verdict("alpha.e1"))) == ("", True)


@pytest.mark.parametrize(
    "left",
    [
        b"", b"{", b"[1]", b'{"alpha.ball": 3}', b'{"alpha.ball": ["x"]}', b"\xff",
        b'{"alpha.ball": [1.0]}', b'{"alpha.ball": [[1.0, -1], [1.0, "1"], ["1", 1], [1.0]]}',
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "page", [b"\xff\xff\xff\xff", b"alpha.ball", b"alpha.ball x", b"alpha.ball -1", b"alpha.ball 9223372036854775808"]
)
def test_files_that_are_not_what_was_written_are_nothing(tmp_path: Path, left: bytes, page: bytes) -> None:
    (tmp_path / "deaths.json").write_bytes(left)
    (tmp_path / "simulating").write_bytes(bytes([len(page)]) + page + bytes(300))
    box = started(tmp_path)
    assert not box.deaths(BALL)
    box.enter(BALL, 1)
    assert started(tmp_path).deaths(BALL) == [1]


def test_a_server_that_cannot_have_the_files_simulates_without(tmp_path: Path) -> None:
    (tmp_path / "simulating").mkdir()
    box = started(tmp_path)
    with box.simulating(BALL, 1):
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
        self.at_work.append(self.stage.environment.crash_guard._page[0])
        return super().step(state, inputs, dt_s)


@pytest.mark.parametrize("fails", ["", "step", "destination"])
async def test_it_is_written_down_before_the_world_is_at_work_and_taken_back_after(system: System, fails: str) -> None:
    world = Telling()
    stage = world.stage = Stage(system, world=world)
    actor = stage.start(stage.fresh("tally"))
    world.fails = fails
    ticks(actor)
    assert bool((await inspect(actor))["broken"]) == bool(fails)
    assert world.at_work == [len(f"{BALL} 1")]
    assert stage.environment.crash_guard._page[0] == 0


async def test_failures_row_41_of_whom_servers_died_too_often_stands_still_here_until_it_is_released(
    system: System,
) -> None:
    stage = Stage(system)
    holdings = Holdings(stage.environment, Written())
    holdings.crash_guard.heard(BALL, [1] * TOO_OFTEN)
    life = holdings.spawn(BALL, "ball", {}, Fence(1), Ownership(ADA, 1)).life
    assert life.quarantine.wherever == DIED_TWICE
    assert life.release()
    assert (life.quarantine_reason, holdings.crash_guard.verdict(BALL)) == ("", "")


@pytest.mark.parametrize(("died_under", "stands_still"), [([1, 3], False), ([3, 5], False), ([5, 7], True)])
async def test_failures_row_41_a_release_holds_wherever_it_goes_until_servers_have_died_of_it_since(
    system: System, died_under: list[int], stands_still: bool
) -> None:
    """Those who have died of it before have not heard that it was released."""
    stage = Stage(system)
    holdings = Holdings(stage.environment, Written())
    holdings.crash_guard.heard(BALL, [1, 3])
    life = holdings.spawn(BALL, "ball", {}, Fence(5), Ownership(ADA, 1)).life
    assert life.release()
    frozen = life.freeze()
    assert frozen is not None
    elsewhere = Holdings(Stage(system).environment, Written())
    elsewhere.crash_guard.heard(BALL, died_under)
    came = elsewhere.start(BALL, Fence(9), EntitySnapshot.decode(frozen.state)).life
    assert bool(came.quarantine.wherever) == stands_still
    assert EntitySnapshot.decode(came.encoded()).released_epoch == 5
