"""Take each line of each composition root out, one by one: some test in process has to fail each time. `make roots`.

    python -m tests.guards.roots [WORDS OF A LINE OR FILE]

The tree is copied; nothing here is changed. Exit status 1 if a line can be gone without a test that fails.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from tests.guards.forked import ForkedTests
from tests.guards.lines import ROOTS, Line, Root, lines_of
from tests.guards.tree_copy import IN_COPY, Verdict, changed, in_copy

MODULE: Final = "tests.guards.roots"
TIMEOUT_S: Final = 300.0


def judged(tests: ForkedTests, root: Root, line: Line) -> Verdict:
    """What the tests of a root say without one of its lines."""
    file = Path(root.file)
    with changed(file, line.without(file.read_bytes()).decode()):
        verdicts = (tests.run(some, root.file, TIMEOUT_S) for some in root.tests)
        return next((verdict for verdict in verdicts if verdict is not Verdict.PASSED), Verdict.PASSED)


def missed(tests: ForkedTests, root: Root, words: Sequence[str]) -> int:
    """How many lines of a root nobody misses; a line for each of these, and one for the root."""
    lines = lines_of(Path(root.file).read_bytes())
    chosen = [line for line in lines if all(word in f"{root.file}:{line.row} {line.shown}" for word in words)]
    began_s, count = time.monotonic(), 0
    for line in chosen:
        verdict = judged(tests, root, line)
        if verdict is not Verdict.FAILED:
            count += 1
            click.echo(f"{verdict.value:11} {root.file}:{line.row} {line.shown}")
    took_s = time.monotonic() - began_s
    click.echo(f"{len(chosen) - count} of {len(chosen)} lines noticed in {took_s:.0f} s  {root.file}")
    return count


def main(words: Sequence[str]) -> int:
    if words[:1] != [IN_COPY]:
        return in_copy(MODULE, words)
    names = sorted({name for root in ROOTS for some in root.tests for name in some})
    tests = ForkedTests(names)
    tests.need_pass(names, TIMEOUT_S)
    return 1 if sum(missed(tests, root, words[1:]) for root in ROOTS) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
