"""Many runs at once: workers in processes of their own, and what they found, added up by mix."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from tempfile import TemporaryDirectory, TemporaryFile
from time import monotonic
from typing import IO, Any, Final

import trio

from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.simulation.kernel import worker

__all__ = ["Campaign", "CampaignKind", "Found", "MixResult", "WorkerFailed", "run_campaign", "worker_lines"]

_MAX_VIOLATIONS_KEPT: Final = 20
_MEMORY_FILES: Final = "/dev/shm"  # noqa: S108 - a private directory is made in it


class WorkerFailed(EnvironmentFailed):
    """A process that runs seeds ended with an error of its own."""


@dataclass(frozen=True, kw_only=True)
class CampaignKind:
    """A kind of simulation, and the command that runs it."""

    command: str
    run: str
    """What runs one seed, as "module:function". It is called with the name of a mix and a seed, and what the campaign
    has as `options`, and returns an `Outcome`."""
    mixes: tuple[str, ...]
    columns: Mapping[str, str]
    """The figures of an outcome that are added up and shown, and their titles."""
    counted: str
    """The figure whose rate is told, ..."""
    title: str
    """...and how that is called."""
    hidden: tuple[str, ...] = ()
    """Figures that are added up as well, and not shown."""
    again: Mapping[str, str] = field(default_factory=dict)
    """Flags that run the same seed again, and the figures of its outcome that they name."""


@dataclass(frozen=True)
class Campaign:
    """What to run: a number of seeds of each mix, from this one on.

    `options` is what each run is told beside its mix and its seed.
    """

    kind: CampaignKind
    mixes: tuple[str, ...]
    seeds: int
    first: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)

    @property
    def figures(self) -> tuple[str, ...]:
        """What is added up."""
        return (*self.kind.columns, *self.kind.hidden)

    def replay(self, outcome: Mapping[str, Any]) -> str:
        """The command that runs one of them again."""
        flags = "".join(f" --{flag} {outcome[figure]}" for flag, figure in self.kind.again.items())
        which = f"--mix {outcome['mix']} --from {outcome['seed']} --seeds 1{flags}"
        return f"{self.kind.command} {which} --trace"

    @property
    def shares(self) -> int:
        """Among how many workers the runs are shared out: not more than there are runs."""
        return min(self.workers, self.seeds * len(self.mixes))


@dataclass(frozen=True, slots=True)
class Found:
    """A violation, and how to see it again."""

    mix: str
    seed: int
    kind: str
    sentence: str
    replay: str
    lines: tuple[str, ...] = ()


@dataclass(slots=True)
class MixResult:
    """What the runs of one mix came to, added up. `kinds` counts the runs with each kind of violation."""

    mix: str
    runs: int = 0
    violated: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    busy_s: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)

    def add(self, outcome: Mapping[str, Any], campaign: Campaign) -> None:
        """One more run."""
        self.runs += 1
        for name in campaign.figures:
            self.figures[name] = self.figures.get(name, 0) + outcome[name]
        self.violated += bool(outcome["violations"])
        for kind, sentence in outcome["violations"]:
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            if len(self.found) < _MAX_VIOLATIONS_KEPT:
                lines = tuple(outcome.get("lines", ()))
                again = campaign.replay(outcome)
                self.found.append(Found(self.mix, outcome["seed"], kind, sentence, again, lines))

    @property
    def seeds_per_s(self) -> float:
        """Runs per second of one worker."""
        return self.runs / self.busy_s if self.busy_s else 0.0

    def per_s(self, figure: str) -> float:
        """One of the figures per second of one worker."""
        return self.figures.get(figure, 0) / self.busy_s if self.busy_s else 0.0

    def to_data(self) -> dict[str, Any]:
        """As plain data, the figures beside the rest."""
        data = asdict(self)
        return {**data.pop("figures"), **data, "seeds_per_s": round(self.seeds_per_s, 2)}


async def run_campaign(
    campaign: Campaign,
    results: dict[str, MixResult],
    *,
    lines: bool = False,
    progress: Callable[[MixResult], None] = lambda _: None,
) -> None:
    """Run everything; `results` is filled as runs end, so that it holds what was done if this is cancelled.

    Raises `WorkerFailed`.
    """
    for mix in campaign.mixes:
        results.setdefault(mix, MixResult(mix))
    async with trio.open_nursery() as nursery:
        for share in range(campaign.shares):
            nursery.start_soon(_work, campaign, share, results, lines, progress)


async def _work(
    campaign: Campaign,
    share: int,
    results: dict[str, MixResult],
    lines: bool,
    progress: Callable[[MixResult], None],
) -> None:
    async with worker_lines(_arguments(campaign, share, lines=lines)) as outcomes:
        began_s = monotonic()
        async for line in outcomes:
            outcome = json.loads(line)
            result = results[outcome["mix"]]
            now_s = monotonic()
            result.busy_s += now_s - began_s
            began_s = now_s
            result.add(outcome, campaign)
            progress(result)


def _arguments(campaign: Campaign, share: int, *, lines: bool) -> list[str]:
    flags: dict[str, Any] = {
        "run": campaign.kind.run,
        "options": json.dumps(dict(campaign.options)),
        "mixes": ",".join(campaign.mixes),
        "from": campaign.first,
        "until": campaign.first + campaign.seeds,
        "share": share,
        "shares": campaign.shares,
    }
    arguments = [sys.executable, "-m", worker.MODULE, "--parent-pipe"]
    for name, value in flags.items():
        arguments += [f"--{name}", str(value)]
    return [*arguments, "--lines"] if lines else arguments


@asynccontextmanager
async def worker_lines(arguments: Sequence[str]) -> AsyncIterator[AsyncIterator[bytes]]:
    """The lines that a worker prints; it ends with the scope, and a Ctrl-C in the terminal does not reach it."""
    with TemporaryFile() as said, _scratch() as scratch:
        process, output = _start(arguments, said, scratch)
        try:
            async with trio.lowlevel.FdStream(output) as stdout:
                yield _lines_of(stdout)
            # Its output ended, so it is about to.
            if process.wait() != 0:
                said.seek(0)
                # The last line of an exception group is a frame around what it says.
                lines = (line.strip(" |+-") for line in said.read().decode(errors="replace").splitlines())
                last = next(filter(None, reversed(list(lines))), "without a word")
                raise WorkerFailed(f"a worker ended with exit status {process.returncode}: {last}")
        finally:
            process.kill()
            process.communicate()


def _scratch() -> TemporaryDirectory[str]:
    """Where a worker keeps files: in memory if possible, and gone when the worker is, even if that was killed."""
    return TemporaryDirectory(
        prefix="batonpass-simulated-", dir=_MEMORY_FILES if os.path.isdir(_MEMORY_FILES) else None
    )


def _start(arguments: Sequence[str], said: IO[bytes], scratch: str) -> tuple[subprocess.Popen[bytes], int]:
    """A worker and the end of the pipe that it writes to. Whatever files it makes, it makes in `scratch`.

    Not started by trio, which starts processes from a thread that ends: a worker dies with the thread that started it.
    """
    ours, theirs = os.pipe()
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=theirs,
            stderr=said,
            start_new_session=True,
            env={**os.environ, "TMPDIR": scratch},
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return process, ours


async def _lines_of(stream: trio.abc.ReceiveStream) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in stream:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
