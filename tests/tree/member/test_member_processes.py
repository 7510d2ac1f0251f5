"""Members in processes of their own, killed while clients write: nothing acknowledged is lost or doubled."""

import json
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import trio

from tests.collected import ROOT
from tests.tree.instances import free_ports

REPOSITORY = ROOT
# For what never comes, on a machine that has much else to do.
PATIENCE_S = 240.0


class MemberProcess:
    """One member; its events are read as they come, so that it never waits for the test."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.acknowledged: list[str] = []
        self._events: deque[dict[str, Any]] = deque()
        self._arrived = trio.Event()

    async def read(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        buffer = b""
        async for chunk in stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event["event"] == "acknowledged":
                    self.acknowledged.append(event["id"])
                else:
                    self._events.append(event)
            self._arrived.set()
            self._arrived = trio.Event()

    async def event(self, name: str) -> dict[str, Any]:
        while True:
            for event in self._events:
                if event["event"] == name:
                    self._events.remove(event)
                    return event
            await self._arrived.wait()

    async def more_acknowledged(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            await self._arrived.wait()

    async def order(self, op: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(json.dumps({"op": op, **arguments}).encode() + b"\n")

    async def ask(self, op: str, answer: str, **arguments: Any) -> dict[str, Any]:
        await self.order(op, **arguments)
        return await self.event(answer)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


class ProcessInstance:
    """Three members in three processes."""

    def __init__(self, directory: Path, nursery: trio.Nursery) -> None:
        self._directory = directory
        self._nursery = nursery
        self._members = [[f"h{rank}", port] for rank, port in enumerate(free_ports(3))]
        self.processes: dict[str, MemberProcess] = {}
        self.names = [f"h{rank}" for rank in range(3)]
        self.newcomers: dict[str, int] = {}  # their ports

    async def start_newcomer(self, name: str) -> MemberProcess:
        """A member that waits to be admitted."""
        (self.newcomers[name],) = free_ports(1)
        self._members.append([name, self.newcomers[name]])
        return await self.start(name)

    async def start(self, name: str) -> MemberProcess:
        config = {
            "name": name,
            "members": self._members,
            "directory": str(self._directory / name),
            "secret": "5a" * 16,
            "compact_after_entries": 200,
            "join": name in self.newcomers,
        }
        command = [sys.executable, "-m", "tests.tree.member_process", json.dumps(config)]
        process = await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE, cwd=REPOSITORY)
        member = self.processes[name] = MemberProcess(process)
        self._nursery.start_soon(member.read)
        await member.event("ready")
        return member

    async def leader(self) -> str:
        while True:
            for name, member in self.processes.items():
                if (await member.ask("status", "status"))["is_leader"]:
                    return name


@asynccontextmanager
async def process_instance(directory: Path) -> AsyncIterator[ProcessInstance]:
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            instance = ProcessInstance(directory, nursery)
            try:
                for name in instance.names:
                    await instance.start(name)
                yield instance
            finally:
                with trio.CancelScope(shield=True):
                    for member in instance.processes.values():
                        await member.kill()
            nursery.cancel_scope.cancel()


async def test_nothing_acknowledged_is_lost_and_nothing_applied_twice_when_leaders_are_killed(tmp_path: Path) -> None:
    async with process_instance(tmp_path) as instance:
        acknowledged: set[str] = set()
        for life, name in enumerate(instance.names):
            await instance.processes[name].order("load", client=f"{name}.{life}", writers=4)
        for life in range(3):
            for member in instance.processes.values():
                await member.more_acknowledged(30)
            leader = await instance.leader()
            killed = instance.processes.pop(leader)
            await killed.kill()
            acknowledged.update(killed.acknowledged)
            for member in instance.processes.values():
                await member.more_acknowledged(30)
            returned = await instance.start(leader)
            await returned.order("load", client=f"{leader}.again.{life}", writers=4)
        for member in instance.processes.values():
            acknowledged.update(member.acknowledged)
        # All of that was acknowledged before the read barriers below, so every one of them must see all of it.
        for member in instance.processes.values():
            counts = (await member.ask("dump", "dump"))["counts"]
            assert acknowledged <= counts.keys(), "something acknowledged was lost"
            assert set(counts.values()) == {1}, "something was applied twice"
