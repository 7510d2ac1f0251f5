"""Instances on loopback for tests: ports, configurations, and members that can be stopped one by one."""

import atexit
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.tree import Member, Procedure, RefusedByInstance, Replica, ReplicaConfig, Transaction
from tests.tree.patient import PatientReplica

SECRET = b"sixteen bytes or more"


def count_once(transaction: Transaction, args: Any) -> int:
    """Deliberately not idempotent: a command applied twice is seen."""
    count: int = transaction.get_or(("counted", args), 0) + 1
    transaction.put(("counted", args), count)
    return count


PROCEDURES: Mapping[str, Procedure] = {"count_once": count_once}


# For as long as this process runs: between choosing a port and listening there, nobody else may choose it.
_PORTS = PortAllocator(random.SystemRandom())
atexit.register(_PORTS.close)


def free_ports(count: int) -> list[int]:
    """Ports that no cluster and no other test is given meanwhile."""
    return [_PORTS.choose() for _ in range(count)]


def configs(directory: Path, size: int, **changes: Any) -> list[ReplicaConfig]:
    """The configurations of all members of an instance."""
    members = tuple(Member(f"h{rank}", "127.0.0.1", port) for rank, port in enumerate(free_ports(size)))
    config = ReplicaConfig("homeserver", "alpha", "h0", members, directory, SECRET, compact_interval_s=0.0)
    config = replace(config, **changes)
    return [replace(config, name=member.name, directory=directory / member.name) for member in members]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that has no event of its own; the test's deadline bounds it."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(0.01)


class Running:
    """A replica and the scope that stops it."""

    def __init__(self, replica: Replica, scope: trio.CancelScope, stopped: trio.Event) -> None:
        self.replica = replica
        self._scope = scope
        self._stopped = stopped

    async def stop(self) -> None:
        self._scope.cancel()
        await self._stopped.wait()


class Instance:
    """Members by name; what is running is stopped at the end."""

    def __init__(self, nursery: trio.Nursery, members: list[ReplicaConfig]) -> None:
        self._nursery = nursery
        self.configs = {config.name: config for config in members}
        self.running: dict[str, Running] = {}
        self.removed: dict[str, RefusedByInstance] = {}  # who stopped because it is no member any more, and why

    async def start(self, name: str) -> Replica:
        replica = PatientReplica(self.configs[name], PROCEDURES)
        scope, stopped = trio.CancelScope(), trio.Event()

        async def serve(*, task_status: trio.TaskStatus[None]) -> None:
            with scope:
                try:
                    await replica.serve(task_status=task_status)
                except RefusedByInstance as refused:
                    if refused.code != "removed_member":
                        raise
                    self.removed[name] = refused
                    self.running.pop(name, None)
            stopped.set()

        await self._nursery.start(serve)
        self.running[name] = Running(replica, scope, stopped)
        return replica

    async def stop(self, name: str) -> None:
        await self.running.pop(name).stop()

    def replicas(self) -> list[Replica]:
        return [running.replica for running in self.running.values()]

    async def leader(self) -> Replica:
        """The leader that all running members know."""
        while True:
            statuses = [replica.status for replica in self.replicas()]
            leaders = {status.leader for status in statuses}
            if all(status.ready for status in statuses) and len(leaders) == 1:
                (name,) = leaders
                if name in self.running and self.running[name].replica.status.is_leader:
                    return self.running[name].replica
            await trio.sleep(0.01)

    async def follower(self) -> Replica:
        leader = await self.leader()
        return next(replica for replica in self.replicas() if replica is not leader)


@asynccontextmanager
async def running_instance(directory: Path, size: int, **changes: Any) -> AsyncIterator[Instance]:
    """An instance whose members all run."""
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            instance = Instance(nursery, configs(directory, size, **changes))
            for name in instance.configs:
                await instance.start(name)
            yield instance
            for name in list(instance.running):
                await instance.stop(name)
            nursery.cancel_scope.cancel()
