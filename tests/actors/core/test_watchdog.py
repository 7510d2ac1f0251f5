"""The watchdog names whoever blocks the node while it is blocked, and disturbs nobody who is idle or innocent."""

import inspect
import json
import signal
import subprocess
import sys
from typing import Any

import pytest
import trio

from batonpass.actors import System
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.core.watchdog import INNER_FRAMES, OUTER_FRAMES, Culprit, Watchdog, find_culprit
from tests.collected import ROOT


def run(how: str) -> tuple[dict[str, Any], str]:
    """What a node that is blocked in this way says about it, and its log."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.actors.blocked_node", how],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    said: dict[str, Any] = json.loads(ended.stdout)
    return said, ended.stderr


@pytest.mark.parametrize(
    ("how", "culprit", "function"),
    [
        ("call sleep", "Blocking 'blocking' #2: Blocking.handle_call", "in block"),
        ("call spin", "Blocking 'blocking' #2: Blocking.handle_call", "in block"),
        ("cast", "Blocking 'blocking' #2: Blocking.handle_cast", "in block"),
        ("service", "service 'heavy' #3", "in block_in_a_service"),
        ("task", "the task __main__.main", "in block"),
    ],
)
def test_whoever_blocks_the_node_is_named_with_its_stack_while_it_does(how: str, culprit: str, function: str) -> None:
    said, log = run(how)
    assert said["blocked"] >= 1
    told = next(blockage for blockage in said["told"] if blockage["culprit"] == culprit)
    while_it_lasts, afterwards = f"{culprit} has been holding up", f"{culprit} held up"
    assert while_it_lasts in log
    assert afterwards in log
    assert log.index(while_it_lasts) < log.index(function) < log.index(afterwards)
    assert any(function in line for line in told["stack"])


def test_an_idle_node_is_not_blocked() -> None:
    said, log = run("idle")
    # A machine that gives the process no time for long may look blocked; an idle actor can never be to blame.
    assert "Blocking" not in log
    assert said["blocked"] == len(said["told"])


async def test_it_leaves_the_signal_to_whoever_has_it() -> None:
    handler, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    assert handler is not signal.SIG_DFL, "pytest-timeout has it, as configured in pyproject.toml"
    watchdog = Watchdog(0.05)
    assert not watchdog.start(Telemetry(trio.current_time))
    watchdog.stop()
    async with System.open("modest") as system:
        assert system.stats.blocked == 0
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL)[0] == pytest.approx(timer[0], abs=60.0)


@pytest.mark.parametrize("period_s", [0.0, -1.0, 0.001, 61.0, float("nan"), float("inf")])
async def test_a_strange_period_is_refused(period_s: float) -> None:
    with pytest.raises(ValueError, match=r"watchdog_s .*must be"):
        async with System.open("strange", watchdog_s=period_s):
            pass


async def test_it_can_be_left_out() -> None:
    async with System.open("unwatched", watchdog_s=None) as system:
        assert system.stats.blocked == 0


def test_of_a_deep_stack_both_ends_are_reported() -> None:
    def dig(depth: int) -> Culprit:
        return find_culprit(inspect.currentframe()) if depth == 0 else dig(depth - 1)

    lines = dig(200).stack
    # Frames that repeat themselves are shown in one line, as Python does.
    assert len(lines) <= OUTER_FRAMES + 1 + INNER_FRAMES
    (middle,) = [number for number, line in enumerate(lines) if "more frames" in line]
    assert not any("in dig" in line for line in lines[:middle])
    assert "in dig" in lines[middle + 1]
