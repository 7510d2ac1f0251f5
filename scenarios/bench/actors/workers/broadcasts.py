"""Broadcasts to 10,000 members: `groups` on one node, and `groups-3` on three, which are joined by sealed links.

All run on one core, the three nodes too. So the figure is what a broadcast costs in all, and not how fast it would be
on three machines.
"""

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import trio

from batonpass.actors import Server, ServiceSpec, System, every
from batonpass.actors.groups import Groups, GroupsSpec
from batonpass.actors.link import Address
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.remote import Distribution
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import PublicIdentity
from batonpass.scenarios.bench.loops import async_rate

MEMBERS = 10_000
BROADCASTS = 5
"""In a row before it is waited for all members to have been told."""


class BroadcastTally:
    """How often all members together have been told."""

    def __init__(self) -> None:
        self.told = 0
        self.wanted = 0
        self.reached = trio.Event()


class ToldMember(Server[None]):
    """Counts what it is told."""

    def __init__(self, tally: BroadcastTally) -> None:
        self._tally = tally

    def handle_info(self, message: Any, state: None) -> None:
        """One more."""
        tally = self._tally
        tally.told += 1
        if tally.told == tally.wanted:
            tally.reached.set()


class GroupNodes:
    """The keys and addresses of nodes that know each other."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.identities = {name: KeyStore(directory / name).load_or_create() for name in names}
        self.addresses: dict[str, Address] = {}

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """For the link."""
        identity = self.identities.get(name)
        return None if identity is None else identity.public

    async def address_of(self, name: str) -> Address | None:
        """For distribution."""
        return self.addresses.get(name)


async def measure_broadcasts(work: str, seconds: float) -> float:
    """Members told per second."""
    names = ("one", "two", "three") if work == "groups-3" else ("one",)
    tally = BroadcastTally()
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as directory:
        known = GroupNodes(Path(directory), names)
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            scopes = []
            for name in names:
                endpoint = LinkEndpoint(name, known.identities[name], known)
                known.addresses[name] = await nursery.start(endpoint.serve)
                system = await stack.enter_async_context(System.open(name))
                distribution = Distribution(system, endpoint, known)
                await system.start_child(ServiceSpec("distribution", distribution.serve))
                groups = Groups("bench")
                await system.start_child(GroupsSpec("groups", groups, nodes=names, beat_s=0.2))
                members = [await system.start(partial(ToldMember, tally)) for _ in range(MEMBERS // len(names))]
                groups.join("all", members)
                scopes.append(groups)
            everybody = MEMBERS // len(names) * len(names)
            async for _ in every(0.05):
                if all(len(groups.members("all")) == everybody for groups in scopes):
                    break

            async def broadcasts() -> int:
                tally.reached = trio.Event()
                tally.wanted = tally.told + everybody * BROADCASTS
                for number in range(BROADCASTS):
                    scopes[0].broadcast("all", number)
                await tally.reached.wait()
                return everybody * BROADCASTS

            found = await async_rate(broadcasts, seconds)
            await stack.aclose()
            nursery.cancel_scope.cancel()
    return found
