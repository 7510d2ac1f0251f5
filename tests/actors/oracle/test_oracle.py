"""Conformance: every recorded line of the OTP oracle has exactly one case, and here happens what happened in Elixir."""

import pytest
import trio.testing

from batonpass.actors import System
from tests.actors.oracle import (
    agent_cases,
    application_cases,
    exit_cases,
    hibernation_cases,
    link_cases,
    machine_cases,
    nimble_cases,
    pool_cases,
    registry_cases,
    remote_start_cases,
    report_cases,
    server_cases,
    stage_cases,
    supervisor_cases,
    sys_cases,
    task_cases,
    timer_cases,
)
from tests.actors.oracle.lines import CASES, HERE, inspect, recorded_lines

AREAS = (
    server_cases,
    exit_cases,
    link_cases,
    supervisor_cases,
    hibernation_cases,
    sys_cases,
    task_cases,
    agent_cases,
    application_cases,
    remote_start_cases,
    report_cases,
    timer_cases,
    registry_cases,
    pool_cases,
    nimble_cases,
    stage_cases,
    machine_cases,
)
"""Imported for their cases."""


@pytest.mark.parametrize("line", recorded_lines(), ids=recorded_lines())
async def test_line(line: str, system: System, autojump_clock: trio.testing.MockClock) -> None:
    (case,) = CASES.get(line) or pytest.fail(f"no case in {AREAS} is about this line")
    outcome = inspect(await case(system))
    if line in HERE:
        assert outcome == HERE[line]
        assert not line.endswith(f": {outcome}"), "it is the same: take `oracle`"
    else:
        assert line.endswith(f": {outcome}"), f"here it is {outcome}"


def test_every_case_is_about_a_recorded_line() -> None:
    assert set(CASES) <= set(recorded_lines())


def test_the_recorded_lines_differ_from_each_other() -> None:
    lines = recorded_lines()
    assert len(lines) == len(set(lines)) > 120
