"""How members reach each other: all on loopback, or each in a network namespace of its own.

A namespaced network is a bridge in the namespace of the run (see `privacy`) and one pair of virtual Ethernet devices
per member. `eth0` is in the member's namespace, the other end is plugged into the bridge. Taking that end down isolates
the member as a pulled cable does, silently. A blackhole route in a member's namespace loses what it sends to one other
member and lets everything else through.

Commands reach members through Unix sockets, which know no network namespaces; so clients never notice a partition
other than by the answers that they get.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from batonpass.scenarios.chaos.tools import missing_tools, run_tool
from batonpass.scenarios.cluster.ports import PortAllocator

__all__ = ["ChaosNetwork", "Loopback", "NamespacedNetwork"]

_TOOLS: Final = ("ip", "nsenter", "unshare", "umount")
_BRIDGE: Final = "bpbridge"
_PORT: Final = 7000
_OURS: Final = 254


class ChaosNetwork(ABC):
    """Where members listen, and how they are started there."""

    @abstractmethod
    async def plug_in(self, name: str) -> None:
        """Give a member its place in the network. Once for each, before it is started."""

    @abstractmethod
    async def unplug(self, name: str) -> None:
        """Take a member's place away, for good. It must be gone."""

    @abstractmethod
    def address(self, name: str) -> tuple[str, int]:
        """Host and port on which the member listens."""

    @abstractmethod
    def prefix(self, name: str) -> Sequence[str]:
        """What to put before the command line of a process that has to live at the member's place."""


class Loopback(ChaosNetwork):
    """All members on 127.0.0.1, each with a port of its own."""

    def __init__(self, ports: PortAllocator) -> None:
        self._ports: Final = ports
        self._addresses: dict[str, tuple[str, int]] = {}

    async def plug_in(self, name: str) -> None:
        """Choose a port."""
        self._addresses[name] = ("127.0.0.1", self._ports.choose())

    def address(self, name: str) -> tuple[str, int]:
        """Host and port on which the member listens."""
        return self._addresses[name]

    async def unplug(self, name: str) -> None:
        """Forget the port."""
        del self._addresses[name]

    def prefix(self, name: str) -> Sequence[str]:
        """Nothing: loopback is where this process lives."""
        return ()


class NamespacedNetwork(ChaosNetwork):
    """Each member in a network namespace; connections can be cut. Made by `NamespacedNetwork.make`.

    Args:
        directory: where the namespaces are bound to files; must exist.
    """

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._places: dict[str, int] = {}
        self._isolated: set[str] = set()
        self._blocked: set[tuple[str, str]] = set()

    @classmethod
    async def make(cls, directory: Path) -> "NamespacedNetwork":
        """Set up the bridge in the network namespace that this process lives in, which must be a private one.

        Raises:
            ToolFailed: the kernel does not permit it.
        """
        await run_tool("ip", "link", "add", _BRIDGE, "type", "bridge")
        await run_tool("ip", "link", "set", _BRIDGE, "up")
        return cls(directory)

    @staticmethod
    def missing_tools() -> str | None:
        """Which tools it would need and cannot find; None if it has them all."""
        return missing_tools(_TOOLS)

    async def plug_in(self, name: str) -> None:
        """Make the member's namespace and connect it to the bridge."""
        place = self._places[name] = next(place for place in range(1, _OURS) if place not in self._places.values())
        namespace = str(self._directory / f"{name}.net")
        await run_tool("touch", namespace)
        await run_tool("unshare", f"--net={namespace}", "true")
        plug = self._plug(name)
        await run_tool("ip", "link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        await run_tool("ip", "link", "set", plug, "master", _BRIDGE, "up")
        await self._inside(name, "address", "add", f"{self._host(place)}/24", "dev", "eth0")
        await self._inside(name, "link", "set", "eth0", "up")
        await self._inside(name, "link", "set", "lo", "up")

    async def unplug(self, name: str) -> None:
        """Remove the member's namespace; its number may be another member's soon."""
        await run_tool("ip", "link", "delete", self._plug(name))
        await run_tool("umount", str(self._directory / f"{name}.net"))
        del self._places[name]

    def address(self, name: str) -> tuple[str, int]:
        """Host and port on which the member listens."""
        return (self._host(self._places[name]), _PORT)

    async def join(self) -> str:
        """Give this process a place on the bridge too, which no fault touches; its address."""
        await run_tool("ip", "address", "add", f"{self._host(_OURS)}/24", "dev", _BRIDGE)
        await run_tool("ip", "link", "set", "lo", "up")
        return self._host(_OURS)

    async def part(self, some: Sequence[str], others: Sequence[str]) -> None:
        """Lose everything between any of some and any of others, both ways."""
        for one, another in itertools.product(some, others):
            await self.block(one, another)
            await self.block(another, one)

    def prefix(self, name: str) -> Sequence[str]:
        """Enter the member's network namespace, and only that one: all share the mounts of the run."""
        return ("nsenter", f"--net={self._directory / name}.net")

    async def isolate(self, name: str) -> None:
        """Pull the member's cable."""
        await run_tool("ip", "link", "set", self._plug(name), "down")
        self._isolated.add(name)

    async def block(self, sender: str, receiver: str) -> None:
        """Lose everything that one member sends to another."""
        await self._inside(sender, "route", "add", "blackhole", self._host(self._places[receiver]))
        self._blocked.add((sender, receiver))

    async def mend(self) -> None:
        """Undo every isolation and every block."""
        while self._isolated:
            await run_tool("ip", "link", "set", self._plug(self._isolated.pop()), "up")
        while self._blocked:
            sender, receiver = self._blocked.pop()
            await self._inside(sender, "route", "del", "blackhole", self._host(self._places[receiver]))

    def _plug(self, name: str) -> str:
        return f"bp{self._places[name]}"

    @staticmethod
    def _host(place: int) -> str:
        return f"10.77.0.{place}"

    async def _inside(self, name: str, *arguments: str) -> None:
        await run_tool(*self.prefix(name), "ip", *arguments)
