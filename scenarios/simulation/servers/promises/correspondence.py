"""What is watched of messages between entities: each is had once, in order, and in the end by its receiver.

Entities count what they have sent to each other and had of each other, in their states. So where a state is resumed
from an earlier tick, so is the count; and what another one has had must never be more.
"""

from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.names import instance_of
from batonpass.scenarios.simulation.servers.world import MAIL

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["NOBODY", "Correspondence"]

NOBODY: Final = "nobody"
"""Part of an id that no entity has, to which entities write too."""


class Correspondence:
    """Of one cluster, whose entities are named by their numbers."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        servers = cluster.mix.servers
        instances = [instance_of(servers[number % len(servers)]) for number in range(cluster.mix.entities)]
        self.names: Final = [f"{instance}.e{number}" for number, instance in enumerate(instances)]
        self._all: Final = [*self.names, *(f"{instance}.{NOBODY}" for instance in dict.fromkeys(instances))]
        self.had = 0
        self.talks = True
        """Entities send something, and not only what they have sent already."""

    def others(self) -> list[str]:
        """To whom entities may send something now."""
        return self._all if self.talks else []

    def has_had(self, sender: str, to: str, number: int, last: int) -> None:
        """An entity is given a message of another, after the last one."""
        self.had += 1
        if number != last + 1 and not self._is_excused(sender, to):
            self._cluster.judge.violated("message-order", f"message {number} of {sender} has come to {to} after {last}")

    def _is_excused(self, *entities: str) -> bool:
        """Whether what was durable of one of them was lost, with more servers than are allowed to die."""
        return any(self._cluster.judge.was_set_back(entity) for entity in entities)

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log does nothing with messages."""

    def unsettled(self) -> str:
        """What was sent and was not had, in a sentence."""
        states = {name: state for name in self.names if (state := self._state_of(name)) is not None}
        for sender, (sent, _, refused) in states.items():
            for to, count in sent.items():
                if self._is_excused(sender, to) or (to in self.names and to not in states):
                    continue
                had = states[to][1].get(sender, 0) if to in states else 0
                if had + refused.get(to, 0) != count:
                    return f"{sender} has sent {to} {count} messages, of which it has had {had}; refused: {refused}"
        return ""

    def _state_of(self, name: str) -> Any:
        record = None if self._cluster.left_out(name) else self._cluster.record(name)
        server = None if record is None else self._cluster.servers.get(record.authority)
        holding = None if server is None else server.holding(name)
        return None if holding is None else holding.life.look()[MAIL]
