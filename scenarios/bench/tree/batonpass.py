"""The subject of ours: three members as processes, durable and with mutual TLS, as homeservers run them."""

import json
import secrets
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from batonpass.scenarios.bench.process_facts import processor_seconds
from batonpass.scenarios.bench.subject import GRACE_S, MEMBER_COUNT, LeaderFault, LeaderMoved, MeasurementFailed, harmed
from batonpass.scenarios.bench.tree.member import arguments_of
from batonpass.scenarios.bench.workloads import BenchWorkload, Place, Sample
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.cluster.processes import ChildCommand, ChildExit, ChildProcesses, RunningChild
from batonpass.tree import Member, ReplicaConfig

__all__ = ["Batonpass", "BenchMember"]

READY_TIMEOUT_S: Final = 60.0
OUTAGE_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02


class BenchMember:
    """One member process and the way to give it orders."""

    def __init__(self, config: ReplicaConfig, orders_port: int, processes: ChildProcesses) -> None:
        self.config: Final = config
        self._orders_port: Final = orders_port
        self._processes: Final = processes
        self.child: RunningChild = self._start()

    def _start(self) -> RunningChild:
        return self._processes.start(
            ChildCommand(
                name=f"batonpass {self.config.name}",
                argv=[
                    sys.executable,
                    "-m",
                    "batonpass.scenarios.bench.tree",
                    arguments_of(self.config, self._orders_port),
                ],
                # Beside its directory, because what is in that is measured.
                log_file=self.config.directory.with_suffix(".log"),
            )
        )

    def restart(self) -> None:
        """Start it again after it was killed, in the same directory."""
        self.child = self._start()

    async def order(self, op: str, **fields: Any) -> Any:
        """Give an order and wait for what it returns.

        Raises:
            MeasurementFailed: the member ended, or what was ordered failed there.
            OSError: it does not listen yet.
        """
        stream = await trio.open_tcp_stream("127.0.0.1", self._orders_port)
        async with stream:
            await stream.send_all(json.dumps({"op": op, **fields}).encode() + b"\n")
            answer = b""
            try:
                while not answer.endswith(b"\n"):
                    chunk = await stream.receive_some()
                    if not chunk:
                        raise trio.BrokenResourceError
                    answer += chunk
            except trio.BrokenResourceError:
                problem = f"{self.child.name} ended during {op}; see {self.child.command.log_file}"
                raise MeasurementFailed(problem) from None
        result = json.loads(answer)
        if "failed" in result:
            raise MeasurementFailed(f"{self.child.name}: {result['failed']}")
        return result["done"]

    async def loop(self, op: str, *, seconds: float, **fields: Any) -> dict[str, Any]:
        """Order a closed loop, the fields of `loads.Loop`.

        Raises:
            MeasurementFailed: not one operation was answered in time; or as `order`.
        """
        loop: dict[str, Any] = await self.order(op, seconds=seconds, **fields)
        if not loop["operations"]:
            raise MeasurementFailed(
                f"{self.child.name} answered no operation in {seconds:g} s; measure for longer (--seconds)"
            )
        return loop


class Batonpass:
    """See `scenarios.bench.subject.Subject`."""

    name: Final = "batonpass"

    def __init__(self, members: list[BenchMember]) -> None:
        self._members = members

    @classmethod
    @asynccontextmanager
    async def open(cls, directory: Path, ports: PortAllocator, *, fill: bool = True) -> AsyncIterator["Batonpass"]:
        """Three members in new directories below `directory`, ready, with all keys written; gone afterwards."""
        crashed: list[ChildExit] = []
        places = tuple(Member(f"b{rank}", "127.0.0.1", ports.choose()) for rank in range(MEMBER_COUNT))
        secret = secrets.token_bytes(32)
        async with ChildProcesses.open(on_crash=crashed.append, grace_s=GRACE_S) as processes:
            members = []
            for place in places:
                config = ReplicaConfig("bench", "bench", place.name, places, directory / place.name, secret)
                members.append(BenchMember(config, ports.choose(), processes))
            cluster = cls(members)
            try:
                await cluster.settle()
                if fill:
                    await (await cluster.leader()).order("fill")
                yield cluster
            except (MeasurementFailed, OSError) as error:
                if crashed:
                    raise MeasurementFailed(crashed[0].sentence) from error
                raise

    async def leader(self) -> BenchMember:
        """The member that leads; waits until all know it."""
        await self.settle()
        for member in self._members:
            if (await member.order("status"))["leads"]:
                return member
        return await self.leader()

    async def followers(self) -> list[BenchMember]:
        """The members that do not lead."""
        leader = await self.leader()
        return [member for member in self._members if member is not leader]

    async def settle(self) -> None:
        """Wait until all members follow the same leader and have applied the same entries."""
        with trio.move_on_after(READY_TIMEOUT_S):
            while not await self._settled():  # noqa: ASYNC110 - other processes tell of nothing by themselves
                await trio.sleep(_POLL_S)
            return
        raise MeasurementFailed(
            f"the three members of {self.name} did not agree on a leader in {READY_TIMEOUT_S:g} s; "
            f"their logs are beside {self._members[0].config.directory}"
        )

    async def _settled(self) -> bool:
        try:
            statuses = [await member.order("status") for member in self._members]
        except OSError:
            for member in self._members:
                if not member.child.running:
                    raise MeasurementFailed(f"{member.child.name} ended; see its log") from None
            return False
        return (
            all(status["ready"] for status in statuses)
            and len({status["leader"] for status in statuses}) == 1
            and len({status["applied"] for status in statuses}) == 1
        )

    async def measure(self, workload: BenchWorkload, seconds: float) -> Sample:
        """See `Subject.measure`. The clients run inside the member that they talk to."""
        leader = await self.leader()
        others = [member for member in self._members if member is not leader]
        host = leader if workload.place is Place.LEADER else others[0]
        before_s = [processor_seconds(member.child.pid) for member in (leader, *others)]
        loop = await host.loop(
            "load",
            kind=workload.kind,
            outstanding=workload.outstanding,
            warm_up_s=min(0.3, seconds / 5),
            seconds=seconds,
        )
        after_s = [processor_seconds(member.child.pid) for member in (leader, *others)]
        if await self.leader() is not leader:
            raise LeaderMoved(f"another member of {self.name} leads after {workload.name}")
        used_us = [(after - before) * 1e6 for before, after in zip(before_s, after_s, strict=True)]
        in_all = loop["operations_in_all"] * workload.commands_per_operation
        return Sample(
            commands=loop["operations"] * workload.commands_per_operation,
            seconds=loop["seconds"],
            p50_ms=_ms(loop["p50_ns"]),
            p99_ms=_ms(loop["p99_ns"]),
            leader_cpu_us=used_us[0] / in_all,
            follower_cpu_us=sum(used_us[1:]) / len(others) / in_all,
        )

    async def outage_ms(self, fault: LeaderFault) -> float:
        """See `Subject.outage_ms`. Both others try to write every 20 ms; the first accepted write counts."""
        leader = await self.leader()
        others = [member for member in self._members if member is not leader]
        began_s = time.monotonic()
        async with harmed(leader.child, fault, leader.restart):
            accepted_s = await _first_accepted_s(others)
        await self.settle()
        return (accepted_s - began_s) * 1e3


async def _first_accepted_s(members: list[BenchMember]) -> float:
    accepted_s: list[float] = []

    async def ask(member: BenchMember, scope: trio.CancelScope) -> None:
        accepted_s.append((await member.order("first_write", timeout_s=OUTAGE_TIMEOUT_S))["at_s"])
        scope.cancel()

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(ask, member, nursery.cancel_scope)
    return min(accepted_s)


def _ms(latency_ns: int | None) -> float | None:
    return None if latency_ns is None else latency_ns / 1e6
