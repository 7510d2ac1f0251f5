"""Hypothesis profiles: `dev` on a desk, `ci` derandomised (same examples every run), `deep` with all, `night` long.

And what a test may change for its whole process, given back after each.
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from batonpass.scenarios.cluster.fork_server import ForkServer
from tests.budget import PROFILE, examples
from tests.spreading import LONG, in_slices

# Started in the background, or with nohup, these are ignored here and in every process that a test starts and ends with
# them. What is handled here begins with its default there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# What tests make is large and short-lived: Python looked at it again and again, which took an eighth of their time.
gc.set_threshold(20_000, 20, 20)

PRINTED = "printed"
"""The name of the properties (`record_property`) that are lines to be printed at the end of a run."""

# No deadline, and no complaint that examples are made slowly: both go by the clock on the wall, so on a machine
# that has much else to do they fail tests in which nothing is wrong.
SLOW_IS_NO_FAULT = [HealthCheck.too_slow]
for name, randomised, count in (
    ("dev", True, examples(50)),
    # The same examples in every run, so that more of them would find nothing that has not been found.
    ("ci", False, examples(50)),
    ("deep", True, 50),
    ("night", True, 5000),
):
    settings.register_profile(
        name,
        deadline=None,
        max_examples=count,
        derandomize=not randomised,
        print_blob=True,
        suppress_health_check=SLOW_IS_NO_FAULT,
    )
settings.load_profile(PROFILE)


@pytest.fixture(scope="session", autouse=True)
def _imported_once() -> Iterator[None]:
    """All clusters of a worker come from one process, which is started for the first of them."""
    with ForkServer.shared():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have found out and a reader wants to know also when all is well, whichever worker ran them."""
    reports = (report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ()))
    lines = [line for report in reports for name, line in report.user_properties if name == PRINTED]
    if lines:
        terminalreporter.section("found out")
        for line in sorted(lines):
            terminalreporter.write_line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers: what takes long first, so that nobody begins with it when all others are done."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = in_slices(items, lambda item: item.nodeid.split("::")[0], workers, LONG)


def pytest_collection_finish() -> None:
    """What was imported and collected stays until the end: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def as_found() -> Iterator[None]:
    """A simulation lets all members of its process read another clock, and silences them."""
    yield
    logging.disable(logging.NOTSET)
    ports = sys.modules.get("batonpass.tree.raft.raft_ports")
    if ports is not None:
        ports.use_clock(None)
