"""Change the cores of safety in one place each, by a seeded sample: some test has to fail each time. `make mutants`.

    python -m tests.guards.sample [--count 64] [--seed 1] [--minutes 60] [--since COMMIT] [--core NAME ...]

Each core of `cores.toml` has as many. The tests that import a changed module are run first, and all of its core then.
Exit status 1 if fewer than 95 % are noticed; one whose tests do not end in time is not.
Those of `cores.toml` that no test needs to notice are not counted.
"""

import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from tests.guards.guards import ROOT
from tests.guards.mutants import Mutant, sampled
from tests.guards.sampled import CORES, EQUIVALENT, Core, Equivalent, near_tests
from tests.guards.tree_copy import Verdict, changed, copied_tree, run_tests

LEAST_NOTICED: Final = 0.95


@dataclass(frozen=True)
class Tried:
    """A mutant of a core, and what the tests say of it."""

    mutant: Mutant
    was: str
    instead: str
    verdict: Verdict
    took_s: float


def drawn(cores: Sequence[Core], count: int, seed: str, since: str) -> list[tuple[Core, Mutant]]:
    """As many of each core as of any other, one of each in turn."""
    each = -(-count // len(cores))
    rows = [
        [(core, mutant) for mutant in sampled(ROOT, core.files(ROOT), each, f"{seed} {core.name}", since)]
        for core in cores
    ]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*rows))
    return [one for one in turns if one is not None][:count]


class Tests:
    """The tests of a copy of the tree, and which of them pass in it as it is."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._pass: Final[dict[tuple[str, ...], bool]] = {}

    def judge(self, core: Core, mutant: Mutant, text: str) -> Verdict:
        """What the tests say that import its module, or else all of its core.

        Raises:
            RuntimeError: a test fails without it, too.
        """
        near, verdict = tuple(near_tests(self._directory, mutant.file, core.tests)), Verdict.PASSED
        for tests in (near, core.tests):
            if not tests:
                continue
            with changed(self._directory / mutant.file, mutant.of(text)):
                verdict = run_tests(self._directory, tests)
            if verdict is not Verdict.PASSED:
                if not self._pass_as_it_is(tests):
                    raise RuntimeError(f"{' '.join(tests)} do not pass as the code is")
                break
        return verdict

    def _pass_as_it_is(self, tests: tuple[str, ...]) -> bool:
        if tests not in self._pass:
            self._pass[tests] = run_tests(self._directory, tests) is Verdict.PASSED
        return self._pass[tests]


def tried(directory: Path, chosen: Sequence[tuple[Core, Mutant]], until_s: float) -> Iterator[Tried]:
    """What became of each, as long as there is time; a line for each."""
    tests = Tests(directory)
    for number, (core, mutant) in enumerate(chosen, 1):
        began_s = time.monotonic()
        if began_s > until_s:
            click.echo(f"no time is left for {len(chosen) - number + 1} of them")
            return
        text = (directory / mutant.file).read_text(encoding="utf-8")
        was, instead = mutant.shown(text)
        if Equivalent(mutant.file, was, instead, "") in EQUIVALENT:
            click.echo(f"{number:3} of {len(chosen)} equivalent           {mutant.file}:{mutant.row}")
            continue
        verdict = tests.judge(core, mutant, text)
        took_s, place = time.monotonic() - began_s, f"{mutant.file}:{mutant.row}"
        click.echo(f"{number:3} of {len(chosen)} {verdict.value:11} {took_s:6.1f} s {place} {mutant.kind}")
        if verdict is not Verdict.FAILED:
            click.echo(f"    - {was}\n    + {instead}")
        yield Tried(mutant, was, instead, verdict, took_s)


@click.command()
@click.option("--count", default=64, help="how many mutants, of all cores together")
@click.option("--seed", default="1", help="which ones")
@click.option("--minutes", default=60.0, help="no other one is begun after this time")
@click.option("--since", default="", help="a commit: of lines that have changed since then only")
@click.option("--core", "names", multiple=True, type=click.Choice([core.name for core in CORES]), help="not all cores")
def main(count: int, seed: str, minutes: float, since: str, names: tuple[str, ...]) -> None:
    """Change the cores of safety in one place at a time: some test has to fail each time."""
    until_s = time.monotonic() + minutes * 60
    cores = [core for core in CORES if not names or core.name in names]
    chosen = drawn(cores, count, seed, since)
    with copied_tree() as directory:
        results = list(tried(directory, chosen, until_s))
    counts = Counter(one.verdict for one in results)
    share = counts[Verdict.FAILED] / len(results) if results else 1.0
    late = f", {counts[Verdict.TIMED_OUT]} timed out" if counts[Verdict.TIMED_OUT] else ""
    click.echo(f"{counts[Verdict.FAILED]} of {len(results)} mutants are noticed{late}: {share:.1%} (seed {seed})")
    sys.exit(share < LEAST_NOTICED)


if __name__ == "__main__":
    main()
