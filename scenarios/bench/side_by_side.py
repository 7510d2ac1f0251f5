"""Measuring several subjects side by side: every sample in a fresh process, one right after the other.

A *course* says what is measured. Each subject has a worker, a program that is run as `python -m WORKER WORK SECONDS`
and prints one line of JSON. That is `{"figure": ...}` in the unit of the row, or `{"version": ...}` for the work
`version`. Where one sample has figures for several rows, the work of each is written `WORK:FIGURE`. It is done once in
a round, and prints `{"figures": {FIGURE: ...}}`, without those that had no value. Peers run in the Python of their own
environment, or on node as `node WORKER PYTHON ENVIRONMENT WORK SECONDS`; see `peers`.
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from batonpass.scenarios.bench.comparison import OURS, Comparison, ComparisonRow, compare
from batonpass.scenarios.bench.machine import is_quiet, look_at_host
from batonpass.scenarios.bench.peers import NpmLibrary, PeerLibrary, PeerMissing, install, install_npm
from batonpass.scenarios.bench.subject import Tell
from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = ["ComparisonPlan", "Course", "run_course"]

_ROOT: Final = Path(__file__).parents[3]
# Beyond what it was told to take: starting up, a hundred thousand actors, a slow machine.
_PATIENCE_S: Final = 120.0

_Command = tuple[str, ...]
_Shared = dict[tuple[str, str], dict[str, float]]
"""The figures of this round's samples that several rows share, by subject and work."""


@dataclass(frozen=True)
class Course:
    """What is measured: the rows, whose workers do it, and the peers whose libraries have to be installed.

    `workers` names the module of each subject that runs in our own Python, ours and the limits; a peer's is `on_NAME`
    beside them. `work` is what a worker calls the work of a row, where it is not the row's own name. A sample may take
    `patience_s` longer than twice the time that it was told to take. With `one_core` all processes of a sample share a
    core; without, they have all that this process may use. With `bears_failures` a sample that fails or does not end
    has no figures, which the report says. Without, our own program that fails ends the course, and a peer's is not
    measured any more. `remarks` looks whether this machine lacks something that the figures depend on; the report
    repeats what it says.
    """

    title: str
    rows: tuple[ComparisonRow, ...]
    package: str
    workers: Mapping[str, str]
    peers: tuple[PeerLibrary | NpmLibrary, ...]
    work: Mapping[tuple[str, str], str] = field(default_factory=dict)
    versions: tuple[str, ...] = ("batonpass", "trio")
    one_core: bool = True
    patience_s: float = _PATIENCE_S
    bears_failures: bool = False
    remarks: Callable[[], tuple[str, ...]] = tuple


@dataclass(frozen=True)
class ComparisonPlan:
    """How often, and for how long each time. Without `peers`, only what our own Python can run."""

    course: Course
    rows: tuple[ComparisonRow, ...]
    rounds: int
    seconds: float
    peers: bool
    directory: Path


async def run_course(plan: ComparisonPlan, tell: Tell) -> Comparison:
    """Measure everything in the plan.

    Raises:
        EnvironmentFailed: our own program failed. A peer that fails is named in the report, and is not measured.
    """
    course = plan.course
    commands, not_measured = await _commands(plan, tell)
    host = look_at_host(course.versions)
    measured: dict[str, dict[str, list[float]]] = {row.name: defaultdict(list) for row in plan.rows}
    failures: dict[str, None] = {}
    for number in range(plan.rounds):
        shared: _Shared = {}
        for row in plan.rows:
            if row.rounds is not None and number >= row.rounds:
                continue
            tell(f"round {number + 1} of {plan.rounds}: {row.title}")
            for subject in _turn([OURS, *row.subjects], number):
                if subject in commands and subject not in not_measured:
                    try:
                        await _measure(row, subject, commands[subject], plan, shared, measured[row.name])
                    except EnvironmentFailed as error:
                        if course.bears_failures:
                            tell(f"no figures: {error}")
                            failures[f"no figures: {error}"] = None
                        elif subject == OURS:
                            raise
                        else:
                            not_measured[subject] = str(error)
    installed = [peer.name for peer in course.peers if peer.name in commands]
    return Comparison(
        title=course.title,
        host=host,
        rounds=plan.rounds,
        quiet=is_quiet(host),
        peers={name: (await _ask(commands[name], "version", 0.0, course))["version"] for name in installed},
        not_measured=not_measured,
        remarks=(*course.remarks(), *failures),
        rows=tuple(compare(row, measured[row.name]) for row in plan.rows),
    )


async def _commands(plan: ComparisonPlan, tell: Tell) -> tuple[dict[str, _Command], dict[str, str]]:
    """How to run each subject's worker, and why a peer is missing."""
    course = plan.course
    commands: dict[str, _Command] = {
        name: (sys.executable, "-m", f"{course.package}.{worker}") for name, worker in course.workers.items()
    }
    not_measured: dict[str, str] = {}
    for peer in course.peers if plan.peers else ():
        try:
            if isinstance(peer, NpmLibrary):
                environment = await trio.to_thread.run_sync(install_npm, peer, plan.directory, tell)
                worker = _worker_folder(course) / f"on_{peer.name}.mjs"
                commands[peer.name] = ("node", str(worker), sys.executable, str(environment))
                continue
            python = await trio.to_thread.run_sync(install, peer, plan.directory, tell)
        except PeerMissing as error:
            not_measured[peer.name] = str(error)
        else:
            commands[peer.name] = (str(python), "-m", f"{course.package}.on_{peer.name}")
    return commands, not_measured


def _worker_folder(course: Course) -> Path:
    return _ROOT.joinpath(*course.package.split("."))


async def _measure(
    row: ComparisonRow,
    subject: str,
    command: _Command,
    plan: ComparisonPlan,
    shared: _Shared,
    measured: dict[str, list[float]],
) -> None:
    work, _, figure = plan.course.work.get((subject, row.name), row.name).partition(":")
    if not figure:
        measured[subject].append((await _ask(command, work, plan.seconds, plan.course))["figure"])
        return
    # Two subjects may be figures of one program.
    program = command[-1]
    if (program, work) not in shared:
        # If it fails it is not done again for the other rows.
        shared[program, work] = {}
        shared[program, work] = (await _ask(command, work, plan.seconds, plan.course))["figures"]
    if figure in shared[program, work]:
        measured[subject].append(shared[program, work][figure])


async def _ask(command: _Command, work: str, seconds: float, course: Course) -> dict[str, Any]:
    """Run a worker; what it printed."""
    pinned = ("taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))) if course.one_core else ()
    argv = (*pinned, *command, work, f"{seconds:g}")
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    with trio.move_on_after(seconds * 2 + course.patience_s):
        done = await trio.run_process(argv, capture_stdout=True, capture_stderr=True, check=False, env=environment)
        if done.returncode != 0:
            raise EnvironmentFailed(f"{command[-1]} {work} failed: {_last_line(done.stderr)}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
    raise EnvironmentFailed(f"{command[-1]} {work} did not end within {seconds * 2 + course.patience_s:g} s")


def _last_line(output: bytes) -> str:
    """The last one that says something: groups of exceptions are framed."""
    lines = [line.strip(" |+-") for line in output.decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")


def _turn(subjects: Sequence[str], number: int) -> Iterable[str]:
    """Who begins changes with each round, so that none always has the warmer processor."""
    return subjects if number % 2 == 0 else reversed(subjects)
