"""Where the time goes: the leader and a follower under a workload, watched by py-spy or, without it, by cProfile."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from batonpass.scenarios.bench.process_facts import processor_seconds
from batonpass.scenarios.bench.subject import MeasurementFailed
from batonpass.scenarios.bench.tree.batonpass import Batonpass, BenchMember
from batonpass.scenarios.bench.tree.profiles import Profile, from_collapsed, is_waiting
from batonpass.scenarios.bench.workloads import BenchWorkload, Place
from batonpass.scenarios.cluster.processes import ChildCommand, ChildProcesses

__all__ = ["MemberProfile", "profile_workload", "render_profile"]

_RATE_HZ: Final = 500
_TOP: Final = 25
_WARM_UP_S: Final = 0.5


@dataclass(frozen=True)
class MemberProfile:
    """What one member did during a workload: `commands` were answered, and it took `processor_s` for its part."""

    role: str
    profile: Profile
    commands: float
    processor_s: float

    def cost_us(self, spent_s: float) -> float:
        """Processor time per command of something that took so much of the profile.

        Profilers measure by the clock, which on a busy machine runs while a process waits for a processor. How much of
        one it really got is known from the kernel, and shared out.
        """
        active_s = self.profile.active_s
        return spent_s / active_s * self.processor_s / self.commands * 1e6 if active_s else 0.0


async def profile_workload(
    cluster: Batonpass, workload: BenchWorkload, seconds: float, directory: Path
) -> list[MemberProfile]:
    """Run a workload, and watch the leader and one follower from within or from outside.

    Raises:
        MeasurementFailed: py-spy may not look into other processes, or an operation failed.
    """
    leader, follower = await cluster.leader(), (await cluster.followers())[0]
    host = leader if workload.place is Place.LEADER else follower
    found: dict[str, tuple[Profile, float]] = {}
    rates: list[float] = []

    async def load() -> None:
        loop = await host.loop(
            "load",
            kind=workload.kind,
            outstanding=workload.outstanding,
            warm_up_s=_WARM_UP_S,
            seconds=seconds,
        )
        rates.append(loop["operations"] * workload.commands_per_operation / loop["seconds"])

    async def watch(role: str, member: BenchMember) -> None:
        before_s = processor_seconds(member.child.pid)
        profile = await _watch(member, seconds, directory / f"{role}.stacks")
        found[role] = profile, processor_seconds(member.child.pid) - before_s

    async with trio.open_nursery() as nursery:
        nursery.start_soon(load)
        await trio.sleep(_WARM_UP_S)
        nursery.start_soon(watch, "leader", leader)
        nursery.start_soon(watch, "follower", follower)
    return [
        MemberProfile(role, profile, commands=rates[0] * seconds, processor_s=processor_s)
        for role, (profile, processor_s) in sorted(found.items(), reverse=True)
    ]


async def _watch(member: BenchMember, seconds: float, stacks_file: Path) -> Profile:
    spy = shutil.which("py-spy")
    if spy is None:
        fields = await member.order("profile", seconds=seconds)
        return Profile(fields["by_function"], fields["by_layer"])
    argv = [
        *(spy, "record", "--pid", str(member.child.pid), "--format", "raw", "--nolineno", "--full-filenames"),
        *("--rate", str(_RATE_HZ), "--duration", str(max(1, round(seconds))), "--output", str(stacks_file)),
    ]
    async with ChildProcesses.open(on_crash=lambda _: None) as processes:
        end = await processes.start(ChildCommand("py-spy", argv, stacks_file.with_suffix(".log"))).wait()
    if end.returncode != 0:
        raise MeasurementFailed(end.sentence)
    return from_collapsed(await trio.Path(stacks_file).read_text(), 1 / _RATE_HZ)


def render_profile(workload: BenchWorkload, profiles: list[MemberProfile]) -> RenderableType:
    """Layers and functions, in microseconds of processor time per command; then what was waited for, by the clock."""
    parts: list[RenderableType] = [Text(f"\n{workload.name}", style="bold")]
    for member in profiles:
        title = f"{member.role}: processor time per command"
        table = Table(box=None, title=Text(title), title_justify="left")
        table.add_column("µs", justify="right")
        table.add_column("%", justify="right")
        table.add_column("where", no_wrap=True)
        layers = member.profile.layers()
        for name, spent_s in layers:
            if not is_waiting(name):
                _add(table, name, spent_s, member)
        for name, spent_s in layers:
            if is_waiting(name):
                table.add_row(f"{spent_s / member.commands * 1e6:.2f}", "", Text(f"{name}, by the clock", style="dim"))
        for name, spent_s in member.profile.top(_TOP):
            _add(table, f"    {name}", spent_s, member)
        parts.append(table)
    return Group(*parts)


def _add(table: Table, name: str, spent_s: float, member: MemberProfile) -> None:
    percent = 100 * spent_s / member.profile.active_s
    table.add_row(f"{member.cost_us(spent_s):.2f}", f"{percent:.1f}", Text(name))
