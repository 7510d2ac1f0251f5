"""A copy of the tree, in which code may be changed and tests are run."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

from tests.guards.guards import ROOT

__all__ = ["IN_COPY", "TIMED_OUT", "TIMEOUT_S", "Verdict", "changed", "copied_tree", "in_copy", "run_tests"]

TIMEOUT_S: Final = 600.0
_PACKAGES: Final = ("actors", "authority", "crypto", "homeserver", "simserver", "tree", "scenarios", "batonpass")
_PASSED: Final = 0
_FAILED: Final = (1, 2)
"""A test fails, or a module of tests cannot be imported."""
TIMED_OUT: Final = b" from pytest-timeout"
"""What the last lines say of a test that was ended for its time."""


class Verdict(Enum):
    """What tests say of a change; the value is the word for people."""

    PASSED = "NOT NOTICED"
    FAILED = "noticed"
    TIMED_OUT = "TIMED OUT"
    """Nobody knows: an endless loop of the change looks like a machine that is too slow."""


@contextmanager
def copied_tree() -> Iterator[Path]:
    """The copy, which is gone when the block ends."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "tree"
        directory.mkdir()
        for needed in (*_PACKAGES, "tests", "docs", ".ci"):
            # With what is compiled: thousands of modules would be compiled again for each change.
            shutil.copytree(ROOT / needed, directory / needed, symlinks=True)
        for file in ROOT.iterdir():
            # Tests of pages read README.md and CHANGELOG.md.
            if file.is_file():
                shutil.copy(file, directory)
        yield directory


IN_COPY: Final = "--in-copy"


def in_copy(module: str, words: Sequence[str]) -> int:
    """Run a module as a program in a copy of the tree, with `IN_COPY` before these words; its exit status."""
    with copied_tree() as directory:
        command = [sys.executable, "-m", module, IN_COPY, *words]
        return subprocess.run(command, cwd=directory, env=_environment(directory), check=False).returncode  # our own


def _environment(directory: Path) -> dict[str, str]:
    environment = os.environ | {"PYTHONPATH": str(directory)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


@contextmanager
def changed(file: Path, text: str) -> Iterator[None]:
    """Another text in a file, until the block ends."""
    before = file.read_text(encoding="utf-8")
    _write(file, text)
    try:
        yield
    finally:
        _write(file, before)


def _write(file: Path, text: str) -> None:
    """Also over what is compiled, which counts as long as size and second of the file are the same."""
    file.write_text(text, encoding="utf-8")
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def run_tests(directory: Path, tests: Sequence[str], timeout_s: float = TIMEOUT_S) -> Verdict:
    """What these tests say there. A module of tests that cannot be imported fails.

    Raises:
        RuntimeError: pytest could not run them.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = _environment(directory)
    try:
        done = subprocess.run(  # our own tests
            command, cwd=directory, env=environment, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Verdict.TIMED_OUT
    if done.returncode == _PASSED:
        return Verdict.PASSED
    if done.returncode not in _FAILED:
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout.decode()[-500:]}")
    return Verdict.TIMED_OUT if TIMED_OUT in done.stdout + done.stderr else Verdict.FAILED
