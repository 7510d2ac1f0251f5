"""Remove each guard of safety, one after the other: some test has to fail each time. `make guards`.

    python -m tests.guards [WORDS OF A NAME]

The tree is copied; nothing here is changed. Exit status 1 if a guard can be removed without a test that fails.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tests.guards.guards import GUARDS, Guard
from tests.guards.tree_copy import Verdict, changed, copied_tree, run_tests


def removed(directory: Path, guard: Guard) -> Verdict:
    """What the tests of a guard say when it is gone."""
    file = directory / guard.file
    with changed(file, guard.without(file.read_text(encoding="utf-8"))):
        return run_tests(directory, guard.tests)


def looked_at(directory: Path, guards: Sequence[Guard]) -> Iterator[Guard]:
    """Those that nothing notices, or not in time; a line for each as it is tried."""
    tests = sorted({name for guard in guards for name in guard.tests})
    if run_tests(directory, tests) is not Verdict.PASSED:
        raise RuntimeError("the tests fail with all guards in place")
    for number, guard in enumerate(guards, 1):
        began_s = time.monotonic()
        verdict = removed(directory, guard)
        took_s = time.monotonic() - began_s
        click.echo(f"{number:3} of {len(guards)} {verdict.value:11} {took_s:5.1f} s  {guard.name}")
        if verdict is not Verdict.FAILED:
            yield guard


def main(words: Sequence[str]) -> int:
    guards = [guard for guard in GUARDS if all(word in guard.name for word in words)]
    with copied_tree() as directory:
        missed = list(looked_at(directory, guards))
    click.echo(f"{len(guards) - len(missed)} of {len(guards)} guards are missed by a test when they are gone")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
