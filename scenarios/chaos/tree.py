"""`baton chaos tree`: real member processes of the tree under faults drawn from a seed."""

import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final, TextIO

import click
import trio
from rich.console import Console

from batonpass.scenarios.cases.cases import machine, versions
from batonpass.scenarios.chaos.network import NamespacedNetwork
from batonpass.scenarios.chaos.plan import KINDS, FaultKind, KernelNeed, draw_plan, parse_kinds
from batonpass.scenarios.chaos.privacy import detach_mounts_below, enter_private_namespaces
from batonpass.scenarios.chaos.report import MIN_WIDTH, ChaosReport, FaultResult, chaos_table, write_chaos_json
from batonpass.scenarios.chaos.run import Grounds, run_faults
from batonpass.scenarios.chaos.storage import ImageDisks
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.options import json_file_option

__all__ = ["command"]

# A socket's name has 108 bytes in all (unix(7)).
_MAX_DIRECTORY_BYTES: Final = 80


def _kinds(_ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[FaultKind, ...]:
    try:
        return tuple(KINDS) if text is None else parse_kinds(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error


@click.command(
    name="tree", epilog="\b\nKinds of faults:\n" + "\n".join(f"  {k:17} {f.sentence}" for k, f in KINDS.items())
)
@click.option("--faults", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How many.")
@click.option("--members", type=click.Choice(["3", "5"]), default="3", show_default=True, help="Of the instance.")
@click.option("--seed", type=int, help="Of the faults and of what clients do. [default: a new one, printed]")
@click.option("--kinds", callback=_kinds, metavar="KIND,...", help="Only these; `kill-*` is possible. [default: all]")
@json_file_option("Write the report as JSON.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep journals, logs and histories here.",
)
def command(
    faults: int,
    members: str,
    seed: int | None,
    kinds: tuple[FaultKind, ...],
    json_file: Path | None,
    directory: Path | None,
) -> int:
    """Run members of the tree in processes of their own, under load, and let one fault after the other happen to them.

    After each fault it is healed, the members have to come together, and what clients were told is judged. No
    acknowledged write may be lost, nothing applied twice, every history is linearizable, and all members' trees are
    equal.

    Partitions need network namespaces and power cuts need loop devices, which the superuser has. What the kernel does
    not permit is skipped, and the report says so. Exit status 1 if anything was violated.
    """
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    skipped = _skipped(kinds)
    possible = tuple(kind for kind in kinds if kind not in skipped)
    console, progress = _console(sys.stdout), _console(sys.stderr)
    for kind, reason in skipped.items():
        progress.print(f"skipping {kind}: {reason}", style="yellow")
    if not possible:
        raise EnvironmentFailed("none of the chosen kinds of faults is possible here")
    report = ChaosReport(seed, int(members), faults, skipped, versions=versions(), machine=_machine(), kinds=kinds)
    progress.print(f"seed {seed}; {faults} faults on {members} members", style="dim")
    with _RunDirectory(directory) as place:
        ended_by = trio.run(_interruptible, possible, place, report, progress)
        if report.violations or directory is not None:
            report.directory = place.keep()
    console.print(chaos_table(report))
    if json_file is not None:
        write_chaos_json(json_file, report)
    if report.violations:
        return 1
    return 128 + ended_by if ended_by else 0


def _needs(kinds: tuple[FaultKind, ...]) -> frozenset[KernelNeed]:
    return frozenset().union(*(KINDS[kind].needs for kind in kinds))


def _skipped(kinds: tuple[FaultKind, ...]) -> dict[FaultKind, str]:
    """Enter the namespaces that these kinds need; those that cannot happen here, and why."""
    reasons = {KernelNeed.NETWORK: NamespacedNetwork.missing_tools(), KernelNeed.IMAGES: ImageDisks.missing_tools()}
    wanted = {need for need in _needs(kinds) if reasons[need] is None}
    permissions = enter_private_namespaces(network=KernelNeed.NETWORK in wanted, images=KernelNeed.IMAGES in wanted)
    reasons[KernelNeed.NETWORK] = reasons[KernelNeed.NETWORK] or permissions.no_network
    reasons[KernelNeed.IMAGES] = reasons[KernelNeed.IMAGES] or permissions.no_images
    skipped: dict[FaultKind, str] = {}
    for kind in kinds:
        for need in sorted(KINDS[kind].needs):
            reason = reasons[need]
            if reason is not None:
                skipped[kind] = f"needs {need}: {reason}"
    return skipped


def _machine() -> dict[str, str | int | float]:
    """Where it runs, and how busy that is: the times of a run mean little on a machine that does other things too."""
    return {**machine(), "load_average": round(os.getloadavg()[0], 2)}


def _console(stream: TextIO) -> Console:
    console = Console(file=stream, highlight=False)
    return console if console.width >= MIN_WIDTH else Console(file=stream, highlight=False, width=MIN_WIDTH)


async def _interruptible(
    possible: tuple[FaultKind, ...], place: "_RunDirectory", report: ChaosReport, screen: Console
) -> int | None:
    """Run the plan until it is done or a signal asks to end, and return its number; the report has what was done."""
    ended_by: int | None = None

    def show(result: FaultResult) -> None:
        screen.print(result.sentence, soft_wrap=True)
        for problem in result.problems:
            screen.print(f"     {problem}", style="bold red", soft_wrap=True)

    needs = _needs(possible)
    grounds = Grounds(place.path, network=KernelNeed.NETWORK in needs, images=KernelNeed.IMAGES in needs)
    plan = draw_plan(report.seed, report.planned, possible)
    with (
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
        PortAllocator(random.SystemRandom()) as ports,
    ):
        async with trio.open_nursery() as nursery:

            async def end_at_signal() -> None:
                nonlocal ended_by
                async for number in signals:
                    ended_by = number
                    report.interrupted = True
                    nursery.cancel_scope.cancel()

            nursery.start_soon(end_at_signal)
            await run_faults(plan, grounds, report, show, ports)
            nursery.cancel_scope.cancel()
    return ended_by


class _RunDirectory:
    """The directory of a run: a temporary one that goes away unless it is kept, or one that the user named."""

    def __init__(self, directory: Path | None) -> None:
        self.path: Final = Path(tempfile.mkdtemp(prefix="baton-chaos-")) if directory is None else directory.absolute()
        self._kept = directory is not None
        if directory is not None:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise EnvironmentFailed(f"{directory} is not empty; name a new directory")
        if len(bytes(self.path)) > _MAX_DIRECTORY_BYTES:
            raise EnvironmentFailed(f"the path {self.path} is too long for the sockets in it; use a shorter one")

    def keep(self) -> Path:
        """Do not remove it; where it is."""
        self._kept = True
        return self.path

    def __enter__(self) -> "_RunDirectory":
        return self

    def __exit__(self, *_exception: object) -> None:
        detach_mounts_below(self.path)
        if not self._kept:
            shutil.rmtree(self.path, ignore_errors=True)
