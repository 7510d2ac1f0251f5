"""On which entities does a batch world fail? Found by having it step some of them alone.

The step of all has raised, and has changed nothing. So all of them are taken out of the world, and groups of them are
let in again, with copies of their states, and stepped by way of trial; what comes of a trial is thrown away. A group on
which the world does not fail is innocent. Who has something new (an input, a timer, its first step here) is tried
first, because that is where the fault is nearly always. A group that fails as a whole and in no half of it is a region:
more cannot be told.

A trial costs what a step of the group costs, and what entering and leaving do; a single culprit among n costs some 2 n
of these in all. What is not found within `SEARCH_NS` is a region as it stands, so that the lease is not lost by it.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.actors.base.errors import is_stopping
from batonpass.simserver.world.batch import BatchWorld
from batonpass.simserver.world.portability import copied

__all__ = ["SEARCH_NS", "Culprits", "culprits"]

SEARCH_NS: Final = 500_000_000


@dataclass(slots=True)
class Culprits:
    """What was found. All entities but those that are named here are in the world again, as they were."""

    culprits: list[tuple[list[str], BaseException]] = field(default_factory=list)
    """Each group on which the world fails, most of them of one entity, with what it raises."""
    lost: dict[str, BaseException] = field(default_factory=dict)
    """Those whose states the world could not give, with what it raised."""
    states: dict[str, Any] = field(default_factory=dict)
    """The states of the culprits."""


def culprits(
    world: BatchWorld,
    entities: Sequence[str],
    first: Iterable[str],
    error: BaseException,
    fails: Callable[[Sequence[str]], BaseException | None],
    monotonic_ns: Callable[[], int],
) -> Culprits:
    """Find out on whom the world fails.

    Args:
        entities: all that are in the world, in its order.
        first: those of them that are tried before all others.
        error: what it raised of all together.
        fails: steps what is in the world, which is this group; what the world raises, or None.
        monotonic_ns: the time.
    """
    return _CulpritSearch(world, fails, monotonic_ns).among(entities, first, error)


class _CulpritSearch:
    def __init__(
        self,
        world: BatchWorld,
        fails: Callable[[Sequence[str]], BaseException | None],
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._world: Final = world
        self._fails: Final = fails
        self._now_ns: Final = monotonic_ns
        self._ends_ns: Final = monotonic_ns() + SEARCH_NS
        self._states: Final[dict[str, Any]] = {}
        self._found: Final = Culprits()

    def among(self, entities: Sequence[str], first: Iterable[str], together: BaseException) -> Culprits:
        """Look for them, and have all others in the world again."""
        for entity in entities:
            try:
                self._states[entity] = self._world.leave(entity)
            except BaseException as error:
                if is_stopping(error):
                    raise
                self._found.lost[entity] = error
        suspects = [entity for entity in dict.fromkeys(first) if entity in self._states]
        others = [entity for entity in self._states if entity not in set(suspects)]
        for group in (suspects, others):
            if group and (raised := self._fails_on(group)) is not None:
                self._look_into(group, raised)
        if not self._found.culprits and self._states:
            # The world fails on neither part, but on both together: who has nothing new did no harm before.
            self._found.culprits.append((suspects or others, together))
        self._let_in_the_rest()
        return self._found

    def _look_into(self, group: list[str], error: BaseException) -> None:
        """The world fails on this group: on which part of it?"""
        if len(group) == 1 or self._now_ns() >= self._ends_ns:
            self._found.culprits.append((group, error))
            return
        half = len(group) // 2
        parts = [(part, self._fails_on(part)) for part in (group[:half], group[half:])]
        if not any(raised for _, raised in parts):
            self._found.culprits.append((group, error))
        for part, raised in parts:
            if raised is not None:
                self._look_into(part, raised)

    def _fails_on(self, group: Sequence[str]) -> BaseException | None:
        """What the world raises of a group alone, or None; it is out of the world again after that."""
        entered: list[str] = []
        try:
            for entity in group:
                self._world.enter(entity, copied(self._states[entity]))
                entered.append(entity)
            return self._fails(group)
        except BaseException as error:
            if is_stopping(error):
                raise
            return error
        finally:
            for entity in entered:
                with suppress(Exception):
                    self._world.leave(entity)

    def _let_in_the_rest(self) -> None:
        """All but the culprits are in the world; of whom it will not take again, it could not give the state either."""
        stopped = {entity for group, _ in self._found.culprits for entity in group}
        for entity, state in self._states.items():
            if entity in stopped:
                self._found.states[entity] = state
                continue
            try:
                self._world.enter(entity, state)
            except BaseException as error:
                if is_stopping(error):
                    raise
                self._found.culprits.append(([entity], error))
                self._found.states[entity] = state
