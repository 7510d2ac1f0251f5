"""Remove each guard of safety, one after the other: some test has to fail each time. `make guards`.

    python -m tests.guards [WORDS OF A NAME]

The tree is copied; nothing here is changed. Exit status 1 if a guard can be removed without a test that fails.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tests.guards.forked import ForkedTests
from tests.guards.guards import GUARDS, Guard
from tests.guards.tree_copy import IN_COPY, TIMEOUT_S, Verdict, changed, in_copy

MODULE: Final = "tests.guards"


def removed(tests: ForkedTests, guard: Guard) -> Verdict:
    """What the tests of a guard say when it is gone."""
    file = Path(guard.file)
    with changed(file, guard.without(file.read_text(encoding="utf-8"))):
        return tests.run(guard.tests, guard.file, TIMEOUT_S)


def looked_at(guards: Sequence[Guard]) -> Iterator[Guard]:
    """Those that nothing notices, or not in time; a line for each as it is tried."""
    names = sorted({name for guard in guards for name in guard.tests})
    tests = ForkedTests(names)
    tests.need_pass(names, TIMEOUT_S)
    for number, guard in enumerate(guards, 1):
        began_s = time.monotonic()
        verdict = removed(tests, guard)
        took_s = time.monotonic() - began_s
        click.echo(f"{number:3} of {len(guards)} {verdict.value:11} {took_s:5.1f} s  {guard.name}")
        if verdict is not Verdict.FAILED:
            yield guard


def main(words: Sequence[str]) -> int:
    if words[:1] != [IN_COPY]:
        return in_copy(MODULE, words)
    guards = [guard for guard in GUARDS if all(word in guard.name for word in words[1:])]
    missed = list(looked_at(guards))
    click.echo(f"{len(guards) - len(missed)} of {len(guards)} guards are missed by a test when they are gone")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
