"""Fake servers for tests of what starts, watches and ends servers, and ways to wait for processes."""

import os
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import trio

from batonpass.scenarios.cluster.blueprint import ServerPlan
from batonpass.scenarios.cluster.cluster import Launcher

ROOT = Path(__file__).parents[2]
FAKE_SERVER = Path(__file__).with_name("fake_server.py")
# A deadline for what takes milliseconds on an idle machine; only a failing test ever waits that long.
DEADLINE_S = 150.0


def fake_launcher(behaviours: Mapping[str, str] | None = None) -> Launcher:
    """Runs the fake server for every plan; `behaviours` says which of them misbehave, and how."""

    def launch(plan: ServerPlan) -> Sequence[str]:
        behaviour = (behaviours or {}).get(plan.name, "well")
        return (sys.executable, str(FAKE_SERVER), str(plan.config_file), behaviour)

    return launch


def dice(seed: int) -> Random:
    """Reproducible dice."""
    return Random(seed)


class Witness:
    """Sees any process end, also one that is not our child: a pidfd outlives its process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def saw_it_end(self, timeout_s: float = DEADLINE_S) -> bool:
        """Whether the process is gone, or goes within the timeout."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        os.close(self._pidfd)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event announces, such as another process's doing.

    Raises:
        trio.TooSlowError: it did not come to be in time.
    """
    with trio.fail_after(DEADLINE_S):
        while True:
            if condition():
                return
            await trio.sleep(0.005)
