"""The promises, watched at every step of a run: the safety sentences of the architecture.

The judge sees what happens, at the moment when it happens on virtual time, whatever the servers believe.
"""

from dataclasses import dataclass
from typing import Final

from authority.epoch import Fence
from scenarios.simulation.oracle import Violation
from simserver.custody import Stint
from simserver.life import Life

__all__ = ["Judge"]


@dataclass(slots=True)
class _Chain:
    """What is known of one entity: the newest fence under which it was taken up, by whom, and that stint."""

    fence: Fence
    server: str
    stint: Stint
    tick: int
    is_destroyed: bool = False
    """A crash took the newest copy; the state may still be under way, or have arrived."""


class Judge:
    """Keeps the first violation of each kind."""

    def __init__(self) -> None:
        self.violations: Final[list[Violation]] = []
        self.ticks = 0
        self.moves = 0
        self._chains: dict[str, _Chain] = {}

    def violated(self, kind: str, sentence: str) -> None:
        """Something happened that must not."""
        if all(known.kind != kind for known in self.violations):
            self.violations.append(Violation(kind, sentence))

    def faulty(self, server: str, sentence: str) -> None:
        """A server did what must not be."""
        self.violated("inputs" if sentence.startswith("input") else "internal-error", f"{server}: {sentence}")

    def begun(self, server: str, stint: Stint) -> None:
        """A server takes up an entity: under a higher fence than anybody before, from where the last one stopped."""
        fence = Fence(stint.epoch, stint.sub)
        chain = self._chains.get(stint.entity)
        if chain is not None:
            self._follow(server, stint, fence, chain)
            self.moves += chain.server != server
        if chain is None or fence > chain.fence:
            self._chains[stint.entity] = _Chain(fence, server, stint, stint.started_tick)

    def _follow(self, server: str, stint: Stint, fence: Fence, chain: _Chain) -> None:
        entity, last = stint.entity, chain.stint
        if fence <= chain.fence:
            self.violated("fence", f"{server} took {entity} up under {fence}, after {chain.server} under {chain.fence}")
        elif not last.ended_hash:
            kind = "from-nothing" if chain.is_destroyed else "two-authorities"
            self.violated(kind, f"{server} took {entity} up, which {chain.server} simulated and never handed over")
        elif stint.started_hash != last.ended_hash or stint.started_tick != chain.tick:
            self.violated(
                "state",
                f"{server} took {entity} up at tick {stint.started_tick}, {chain.server} had stopped at {chain.tick}",
            )

    def ticked(self, server: str, life: Life) -> None:
        """A server simulated an entity for one tick, which only its newest authority may."""
        self.ticks += 1
        chain = self._chains[life.id]
        if (chain.server, chain.fence) != (server, life.fence):
            self.violated(
                "two-authorities",
                f"{server} simulated {life.id} under {life.fence}, which {chain.server} has under {chain.fence}",
            )
        elif life.tick != chain.tick + 1:
            self.violated("state", f"{server} went from tick {chain.tick} of {life.id} to {life.tick}")
        chain.tick = life.tick

    def crashed(self, server: str, entities: list[str]) -> None:
        """A server is gone with what it had in memory."""
        for entity in entities:
            chain = self._chains[entity]
            if chain.server == server:
                chain.is_destroyed = True

    def is_destroyed(self, entity: str) -> bool:
        """Whether a crash took the newest copy, and nobody has taken the entity up since."""
        return self._chains[entity].is_destroyed
