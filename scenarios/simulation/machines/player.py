"""The owner of one entity: gives numbered inputs until it has heard that each was applied, wherever the entity is."""

from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.wire.transfer import InputItem
from batonpass.scenarios.simulation.machines.words import Elsewhere, Given, InputsHeard

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.machines.cluster import MachineCluster

__all__ = ["MachinePlayer"]

MAX_UNHEARD: Final = 16
AGAIN_S: Final = 0.25
_ASKS_AFTER: Final = 3
"""After how many repetitions without an answer it asks home where the entity is."""


class MachinePlayer:
    """A player, as a node of the network."""

    def __init__(self, world: "MachineCluster", name: str, entity: str, server: str, every_s: float) -> None:
        self.world: Final = world
        self.name: Final = name
        self.entity: Final = entity
        self.where = server
        self.given = 0
        self.heard = 0
        self.applied = 0
        self._fence = self._heard_at = Fence(0)
        self._every_s: Final = every_s
        self._items: list[InputItem] = []
        self._has_ended = False
        self._in_vain = 0
        self._next_s = 0.0
        world.schedule.after(every_s * world.dice.random(), self._turn)

    @property
    def waits(self) -> bool:
        """Whether it has not heard that everything was applied."""
        return len(self._items) > self.heard

    def _turn(self) -> None:
        """Give the next input, or the last ones again."""
        schedule, self._has_ended = self.world.schedule, False
        if not self.world.is_resting and schedule.now_s >= self._next_s and self.given - self.heard < MAX_UNHEARD:
            self._next_s = schedule.now_s + self._every_s
            self.given += 1
            item = InputItem(source=self.name, owner_rev=1, seq=self.given, data=b"%d" % self.given)
            self.world.judge.gives(self.entity, item.seq, item.data)
            self._items.append(item)
        if self.waits:
            self._in_vain += 1
            if self._in_vain > _ASKS_AFTER:
                self._ask()
            self._send()
        elif self.world.is_resting:
            self._has_ended = True
            return
        schedule.after(AGAIN_S if self.waits else max(self._next_s - schedule.now_s, AGAIN_S), self._turn)

    def _ask(self) -> None:
        self._in_vain = 0
        if (server := self.world.authority_of(self.entity)) is not None:
            self.where = server

    def _send(self) -> None:
        self.world.network.send(self.name, self.where, Given(self.entity, tuple(self._items[self.applied :])))

    def take(self, message: Any, sender: str) -> None:
        """A server answers."""
        match message:
            case InputsHeard(applied, durable, fence):
                if fence < self._fence:
                    return
                self.world.judge.acknowledges(self.entity, durable)
                if fence > self._heard_at:
                    # Less than it had heard of before is what is left when servers have died.
                    self.applied, self.heard = applied, min(self.heard, applied)
                self._fence = self._heard_at = fence
                self.where, self._in_vain = sender, 0
                self.applied, self.heard = max(self.applied, applied), max(self.heard, durable)
                if self.waits and self._has_ended:
                    self._turn()
            case Elsewhere(moved_to, fence) if moved_to and fence > self._fence:
                self._fence, self.where = fence, moved_to
                self._send()
            case _:
                pass
