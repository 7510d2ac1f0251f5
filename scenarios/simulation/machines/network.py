"""The network: messages go by reference, and may be lost, come twice, late, or in any order.

There are no connections: whatever order a real link keeps, the machines must not need.
"""

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from batonpass.scenarios.simulation.kernel.schedule import Schedule
from batonpass.scenarios.simulation.machines.mixes import MachineFaultMix

__all__ = ["MachineNetwork", "MachineNode"]


class MachineNode(Protocol):
    """What can be sent messages."""

    def take(self, message: Any, sender: str) -> None:
        """A message arrives."""


class MachineNetwork:
    """Carries messages between nodes by their names; what is sent to an unknown name is lost."""

    def __init__(self, schedule: Schedule, dice: Random, mix: MachineFaultMix) -> None:
        self.nodes: Final[dict[str, MachineNode]] = {}
        self.sent = 0
        self._schedule: Final = schedule
        self._random: Final = dice.random
        self._shortest_s, longest_s = mix.delay_s
        self._spread_s = longest_s - self._shortest_s
        self._lost = mix.lost
        self._repeated = mix.lost + mix.repeated
        self._late = self._repeated + mix.late
        self._late_s = mix.late_s
        self._cuts: dict[tuple[str, str], int] = {}

    def send(self, sender: str, to: str, message: Any) -> None:
        """Put a message under way."""
        self.sent += 1
        fate = self._random()
        if fate < self._lost:
            return
        delay_s = self._shortest_s + self._spread_s * self._random()
        if fate < self._late:
            if fate < self._repeated:
                again_s = self._shortest_s + self._late_s[1] * self._random()
                self._schedule.after(again_s, partial(self._arrive, sender, to, message))
            else:
                shortest_s, longest_s = self._late_s
                delay_s += shortest_s + (longest_s - shortest_s) * self._random()
        self._schedule.after(delay_s, partial(self._arrive, sender, to, message))

    def _arrive(self, sender: str, to: str, message: Any) -> None:
        # Looked at on arrival: what is under way when a way is cut does not come either.
        node = self.nodes.get(to)
        if node is not None and not (self._cuts and (sender, to) in self._cuts):
            node.take(message, sender)

    def cut(self, ways: Iterable[tuple[str, str]]) -> None:
        """Nothing comes through by these ways, until each has been mended as often as it was cut."""
        for way in ways:
            self._cuts[way] = self._cuts.get(way, 0) + 1

    def mend(self, ways: Iterable[tuple[str, str]]) -> None:
        """The ways are as they were before they were cut."""
        for way in ways:
            if self._cuts.get(way, 0) <= 1:
                self._cuts.pop(way, None)
            else:
                self._cuts[way] -= 1

    def heal(self) -> None:
        """From now on nothing is lost, late or in the way."""
        self._cuts.clear()
        self._lost = self._repeated = self._late = 0.0
