"""Remove each guard of safety, one after the other: some test has to fail each time. `make guards`.

    python -m tests.guards [WORDS OF A NAME]

The tree is copied; nothing here is changed. Exit status 1 if a guard can be removed without a test that fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tests.guards.guards import GUARDS, ROOT, Guard

TIMEOUT_S: Final = 600.0
PACKAGES: Final = ("actors", "authority", "crypto", "homeserver", "simserver", "tree", "scenarios", "batonpass")


def run_tests(directory: Path, tests: Sequence[str]) -> bool:
    """Whether these tests pass there; one that does not end in time has noticed something."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(  # our own tests
            command, cwd=directory, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout.decode()[-500:]}")
    return done.returncode == 0


def removed(directory: Path, guard: Guard) -> bool:
    """Whether the tests of a guard notice that it is gone."""
    file = directory / guard.file
    text = file.read_text(encoding="utf-8")
    file.write_text(guard.without(text), encoding="utf-8")
    try:
        return not run_tests(directory, guard.tests)
    finally:
        file.write_text(text, encoding="utf-8")


def looked_at(directory: Path, guards: Sequence[Guard]) -> Iterator[Guard]:
    """Those that nothing notices; a line for each as it is tried."""
    tests = sorted({name for guard in guards for name in guard.tests})
    if not run_tests(directory, tests):
        raise RuntimeError("the tests fail with all guards in place")
    for number, guard in enumerate(guards, 1):
        began_s = time.monotonic()
        is_noticed = removed(directory, guard)
        word = "noticed" if is_noticed else "NOT NOTICED"
        click.echo(f"{number:3} of {len(guards)} {word:11} {time.monotonic() - began_s:5.1f} s  {guard.name}")
        if not is_noticed:
            yield guard


def main(words: Sequence[str]) -> int:
    guards = [guard for guard in GUARDS if all(word in guard.name for word in words)]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "tree"
        directory.mkdir()
        for needed in (*PACKAGES, "tests", "docs"):
            shutil.copytree(
                ROOT / needed, directory / needed, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(ROOT / "pyproject.toml", directory)
        missed = list(looked_at(directory, guards))
    click.echo(f"{len(guards) - len(missed)} of {len(guards)} guards are missed by a test when they are gone")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
