"""Take each line of each composition root out, one by one: some test in process has to fail each time. `make roots`.

    python -m tests.guards.roots [WORDS OF A LINE OR FILE]

The tree is copied; nothing here is changed. Each line is tried in a process forked from one that has imported what does
not depend on the roots. Exit status 1 if a line can be gone without a test that fails.
"""

import io
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from select import select
from signal import SIGKILL
from typing import Final

import click
import grimp
import pytest

from tests.guards.lines import ROOTS, Line, Root, lines_of
from tests.guards.tree_copy import Verdict, changed, copied_tree

TIMEOUT_S: Final = 120.0
_IN_COPY: Final = "--in-copy"


def dependents(modules: Sequence[str]) -> set[str]:
    """Themselves, and all that import one of them, at whatever remove."""
    graph = grimp.build_graph("batonpass", cache_dir=None)
    return set(modules).union(*(graph.find_downstream_modules(name) for name in modules))


def _quiet() -> None:
    """What tests print is not of interest, here and in what is called."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def forked(tests: Sequence[str], forgotten: set[str]) -> Verdict:
    """What tests say in a fork of this process, which imports these modules, and all tests, anew."""
    child = os.fork()
    if child == 0:
        _quiet()
        for name in list(sys.modules):
            if name in forgotten or name == "tests" or (name.startswith("tests.") and "guards" not in name):
                del sys.modules[name]
        status = pytest.main(["-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests])
        os._exit(int(status))
    is_over, _, _ = select([os.pidfd_open(child)], [], [], TIMEOUT_S)
    if not is_over:
        os.kill(child, SIGKILL)
    _, status = os.waitpid(child, 0)
    if not is_over:
        return Verdict.TIMED_OUT
    return Verdict.PASSED if status == 0 else Verdict.FAILED


def judged(directory: Path, root: Root, line: Line, forgotten: set[str]) -> Verdict:
    """What the tests of a root say without one of its lines."""
    file = directory / root.file
    with changed(file, line.without(file.read_bytes()).decode()):
        verdicts = (forked(tests, forgotten) for tests in root.tests)
        return next((verdict for verdict in verdicts if verdict is not Verdict.PASSED), Verdict.PASSED)


def look(directory: Path, words: Sequence[str]) -> int:
    """How many lines are missed by nobody; a line for each root, and for each that is not noticed."""
    forgotten = dependents([root.module for root in ROOTS])
    with redirect_stdout(io.StringIO()):
        pytest.main(["-q", "--collect-only", "-n", "0", "-p", "no:cacheprovider", *ROOTS[0].tests[0]])
    missed = 0
    for root in ROOTS:
        if any(forked(tests, forgotten) is not Verdict.PASSED for tests in root.tests):
            raise RuntimeError(f"the tests of {root.file} fail with all its lines in place")
        lines = lines_of((directory / root.file).read_bytes())
        chosen = [line for line in lines if all(word in f"{root.file}:{line.row} {line.shown}" for word in words)]
        began_s, of_root = time.monotonic(), 0
        for line in chosen:
            verdict = judged(directory, root, line, forgotten)
            if verdict is not Verdict.FAILED:
                of_root += 1
                click.echo(f"{verdict.value:11} {root.file}:{line.row} {line.shown}")
        took_s = time.monotonic() - began_s
        click.echo(f"{len(chosen) - of_root} of {len(chosen)} lines noticed in {took_s:.0f} s  {root.file}")
        missed += of_root
    return missed


def main(words: Sequence[str]) -> int:
    if words[:1] == [_IN_COPY]:
        return 1 if look(Path.cwd(), words[1:]) else 0
    with copied_tree() as directory:
        environment = os.environ | {"PYTHONPATH": str(directory)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "tests.guards.roots", _IN_COPY, *words]
        return subprocess.run(command, cwd=directory, env=environment, check=False).returncode  # our own tests


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
