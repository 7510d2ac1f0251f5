"""The benchmark of hand-overs: its rows, its world, and that every sample has every figure that a row takes from it."""

import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from batonpass.scenarios.bench.comparison import OURS
from batonpass.scenarios.bench.transfers import cores, workers
from batonpass.scenarios.bench.transfers.course import CASES, COURSE, MANY, SIZES, modes
from batonpass.scenarios.bench.transfers.dashboards import DASHBOARDS
from batonpass.scenarios.bench.transfers.workers import on_batonpass, on_floor
from batonpass.scenarios.bench.transfers.world import Shuttle, ballast_for
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.world.pending_input import PendingInput

HERE, THERE = "alpha.s1", "alpha.s2"


def figures_of(subject: str, sample: str) -> set[str]:
    """What the rows take from this sample."""
    works = [work for (who, _), work in COURSE.work.items() if who == subject]
    return {figure for work in works for name, _, figure in [work.partition(":")] if name == sample}


def test_every_mode_that_can_be_asked_for_has_its_rows() -> None:
    assert workers.__doc__
    rows = {row.name for row in COURSE.rows}
    for case, size, mode in itertools.product(CASES, SIZES, modes()):
        for figure in ("p50", "ordinary-p50", "p99", "gap-p99", "rate", "many-p50", "many-p99", "many-rate"):
            assert f"{case}-{size}-{mode}-{figure}" in rows
    assert {OURS, *(subject for row in COURSE.rows for subject in row.subjects)} == set(COURSE.workers)
    assert all((subject, row.name) in COURSE.work for row in COURSE.rows for subject in (OURS, *row.subjects))


@pytest.mark.parametrize("size", [300, 1024 * 1024])
def test_a_state_is_as_big_as_its_row_says(size: int) -> None:
    state = Shuttle().spawn("ball", {"ballast": ballast_for(size, (HERE, THERE)), "between": [HERE, THERE]})
    assert abs(len(EntitySnapshot("ball", 1000, state, EntityInbox().to_data()).encode()) - size) < 10


def test_a_shuttle_stays_until_it_is_pushed_and_never_rests_afterwards() -> None:
    world = Shuttle()
    state = world.step(world.spawn("ball", {"between": [HERE, THERE]}), (), 0.05)
    assert world.destination(state, HERE, 5) is None
    state = world.step(state, [PendingInput("alpha.ada", 1, b"")], 0.05)
    assert (world.destination(state, HERE, 1), world.destination(state, THERE, 1)) == (THERE, HERE)
    ball = world.step(world.spawn("ball", {}), [PendingInput("alpha.ada", 1, b"")], 0.05)
    assert world.destination(ball, HERE, 1) is None


@pytest.mark.parametrize("sample", ["3-300-eager", "2-300-staged"])
async def test_the_floor_has_the_figures_that_rows_take_from_it(sample: str) -> None:
    measured = await on_floor.measure(sample, 0.02)
    assert figures_of("floor", sample) | figures_of("floor, paced", sample) == set(measured)
    assert 0 < measured["p50"] <= measured["p99"]
    assert 0 < measured["paced-p50"] <= measured["paced-p99"]
    assert measured["rate"] > 0
    assert measured["many-rate"] > 0


@pytest.mark.timeout(120)
async def test_a_cluster_has_the_figures_that_rows_take_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_batonpass, "MANY", 4)
    measured = await on_batonpass.measure("3-300-eager", 0.1)
    assert MANY > 4
    assert set(measured) == figures_of(OURS, "3-300-eager")
    assert 0 < measured["p50"] <= measured["p99"]
    assert all(figure > 0 for figure in measured.values())


async def test_dashboards_are_open_while_that_is_measured_and_each_is_told_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_open, told = [False], [7] * DASHBOARDS

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[list[int]]:
        assert url == "http://alpha.h1"
        is_open.append(True)
        yield told
        is_open.append(False)

    async def rate(*_: Any) -> float:
        return 95.0 if is_open[-1] else 100.0

    monkeypatch.setattr(on_batonpass, "dashboards_open", opened)
    monkeypatch.setattr(on_batonpass, "_rate", rate)
    monkeypatch.setattr(on_batonpass, "_set_in_motion", AsyncMock())
    measured = await on_batonpass._looked_at(MagicMock(), "http://alpha.h1", 0.0)
    assert measured == {"share": 0.95}
    assert {"down", *measured} == figures_of(OURS, "dashboards")
    told[3] = 0
    with pytest.raises(RuntimeError, match="told nothing"):
        await on_batonpass._looked_at(MagicMock(), "http://alpha.h1", 0.0)


@pytest.mark.timeout(120)
async def test_what_is_staged_is_asked_for_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_batonpass, "MANY", 4)
    measured = await on_batonpass.measure("3-300-staged", 0.1)
    assert set(measured) == figures_of(OURS, "3-300-staged")
    assert all(figure > 0 for figure in measured.values())


def test_the_ends_go_before_all_others_for_a_while() -> None:
    if not cores.can_go_ahead():
        with pytest.raises(PermissionError), cores.ahead_of_others([0]):
            pass
        assert COURSE.remarks() != ()
        return
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        with cores.ahead_of_others([other.pid, 0]):
            assert [os.sched_getscheduler(pid) for pid in (other.pid, 0)] == [os.SCHED_FIFO] * 2
        assert [os.sched_getscheduler(pid) for pid in (other.pid, 0)] == [os.SCHED_OTHER] * 2
        with cores.ahead_of_others([other.pid]):
            other.communicate(b"\n")
    assert COURSE.remarks() == ()


def test_whoever_goes_first_is_scheduled_afterwards_as_before() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        os.sched_setscheduler(other.pid, os.SCHED_BATCH, os.sched_param(0))
        with suppress(PermissionError), cores.ahead_of_others([other.pid]):
            pass
        assert os.sched_getscheduler(other.pid) == os.SCHED_BATCH
        other.communicate(b"\n")


async def test_where_no_end_may_go_before_others_all_is_measured_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(pid: int, policy: int, param: os.sched_param) -> None:
        raise PermissionError(f"{pid}: {policy}, {param}")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert not cores.can_go_ahead()
    assert ["CAP_SYS_NICE" in remark for remark in COURSE.remarks()] == [True]
    measured = await on_floor.measure("3-300-eager", 0.02)
    assert figures_of("floor", "3-300-eager") | figures_of("floor, paced", "3-300-eager") == set(measured)


async def test_the_floor_of_bulk_is_how_many_there_are_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_floor, "BULK", 16)
    measured = await on_floor.measure("bulk", 0.02)
    assert set(measured) == figures_of("floor", "bulk")
    assert measured["many-rate"] > 0


@pytest.mark.timeout(120)
async def test_a_drained_server_is_timed_until_it_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_batonpass, "DRAINED", 5)
    monkeypatch.setattr(on_batonpass, "DRAIN_SIMSERVERS", 2)
    monkeypatch.setattr(on_batonpass, "DRAIN_TICK_HZ", 20.0)
    assert figures_of(OURS, "drain") == {"drain"}
    assert (await on_batonpass.measure("drain", 0.1))["drain"] > 0
