"""A server may have as many files open as its hard limit says, wherever its soft limit began."""

import resource
import subprocess
import sys
from functools import partial

from batonpass.actors.supervision.open_files import FEW

SCRIPT = """
import logging, resource
logging.basicConfig(level="WARNING")
from batonpass.actors.supervision.open_files import allow_open_files
print(allow_open_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def run(soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    done = run(256, FEW)
    assert (done.stdout.split(), done.stderr) == ([str(FEW)] * 3, "")


def test_a_hard_limit_that_is_low_is_named_with_what_to_do() -> None:
    done = run(256, 1024)
    assert done.stdout.split() == ["1024"] * 3
    assert "ulimit -Hn" in done.stderr
