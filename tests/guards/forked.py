"""Tests in forks of a process that has imported everything: a change of one module costs what imports it, not all.

It is meant for a copy of the tree (`tree_copy`), whose files change while it runs.
"""

import io
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from select import select
from signal import SIGKILL
from tempfile import TemporaryFile
from typing import Final

import grimp
import pytest

from tests.guards.tree_copy import TIMED_OUT, Verdict

__all__ = ["ForkedTests", "module_of"]

_OPTIONS: Final = ("-q", "-x", "-n", "0", "-p", "no:cacheprovider")
_PASSED: Final = 0
_FAILED: Final = (1, 2)
"""A test fails, or a module of tests cannot be imported."""


def module_of(file: str) -> str:
    """The name of the module in a file of a package, as `simserver/server/build.py`."""
    return "batonpass." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class ForkedTests:
    """Runs tests, again and again; `tests` are all that will be run, whose modules are imported now."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._graph: Final = grimp.build_graph("batonpass", "tests", cache_dir=None)
        self._said = ""
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            pytest.main([*_OPTIONS, "--collect-only", *tests])

    def run(self, tests: Sequence[str], file: str, timeout_s: float) -> Verdict:
        """What tests say while `file` is changed, or none if that is empty.

        Raises:
            RuntimeError: pytest could not run them.
        """
        dependents = self._dependents(module_of(file)) if file else frozenset[str]()
        with TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                for place in (1, 2):
                    os.dup2(said.fileno(), place)
                _forget(dependents)
                os._exit(int(pytest.main([*_OPTIONS, *tests])))
            status = _ended(child, timeout_s)
            said.seek(0)
            text = said.read()
        self._said = text.decode(errors="replace")
        if status == _PASSED:
            return Verdict.PASSED
        if status is None or TIMED_OUT in text:
            return Verdict.TIMED_OUT
        if status not in _FAILED:
            raise RuntimeError(f"pytest ended with {status}: {self._said[-500:]}")
        return Verdict.FAILED

    def _dependents(self, module: str) -> frozenset[str]:
        """What has to be imported anew: itself, what imports it, and whatever is in a package that does, and so on."""
        found, waiting = set[str](), [module]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += [*self._graph.find_modules_that_directly_import(one), *self._graph.find_descendants(one)]
        return frozenset(found)

    def need_pass(self, tests: Sequence[str], timeout_s: float) -> None:
        """Raises `RuntimeError`, with what pytest says, if they do not pass while nothing is changed."""
        if self.run(tests, "", timeout_s) is not Verdict.PASSED:
            raise RuntimeError(f"the tests do not pass with nothing changed: {self._said[-1500:]}")


def _forget(modules: Iterable[str]) -> None:
    """Have these modules imported anew: they are attributes of their packages, too."""
    for name in modules:
        package, _, last = name.rpartition(".")
        if sys.modules.pop(name, None) is not None and package in sys.modules:
            vars(sys.modules[package]).pop(last, None)


def _ended(child: int, timeout_s: float) -> int | None:
    """The exit status of a child; None: it did not end in time, and is no more."""
    handle = os.pidfd_open(child)
    try:
        is_over = bool(select([handle], [], [], timeout_s)[0])
    finally:
        os.close(handle)
    if not is_over:
        os.kill(child, SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if is_over else None
