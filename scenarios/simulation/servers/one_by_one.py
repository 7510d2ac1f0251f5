"""A world that steps each entity by itself, as a batch world: so that both kinds can be held to the same promises."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from batonpass.actors.base.errors import is_stopping
from batonpass.simserver.entity.sleep import may_sleep
from batonpass.simserver.world.api import a_destination
from batonpass.simserver.world.batch import BatchStep
from batonpass.simserver.world.portability import a_state

__all__ = ["OneByOne"]

# What a batch world does not have: it would be asked for it.
_ITS_OWN: Final = frozenset(("step", "advance", "undo"))


class OneByOne:
    """A batch world that asks `alone`, a world of the other kind, about every entity; all else is as with that.

    `undoes` says whether it can take back a step, `names` whether it names those that fail (`BatchStep.fail`): without
    it the step of all raises.
    """

    def __init__(self, alone: Any, *, undoes: bool = True, names: bool = True) -> None:
        self.alone: Final = alone
        self._names: Final = names
        self._states: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        if undoes:
            self.undo = self._undo

    def __getattr__(self, name: str) -> Any:
        if name in _ITS_OWN or name == "alone":
            raise AttributeError(name)
        return getattr(self.alone, name)

    def forget(self) -> None:
        """The server is dead, with what it had in memory."""
        self._states, self._before = {}, {}
        if hasattr(self.alone, "forget"):
            self.alone.forget()

    def enter(self, entity: str, state: Any) -> None:
        """As `BatchWorld.enter`."""
        if entity in self._states:
            raise ValueError(f"{entity} has entered already")
        self._states[entity] = state

    def leave(self, entity: str) -> Any:
        """As `BatchWorld.leave`."""
        return self._states.pop(entity)

    def encode(self, entity: str) -> Any:
        """As `BatchWorld.encode`."""
        return self._states[entity]

    def _undo(self) -> None:
        self._states = self._before

    def step_all(self, batch: BatchStep, dt_s: float) -> Collection[str]:
        """As `BatchWorld.step_all`."""
        self._before = dict(self._states)
        after: dict[str, Any] = {}
        for entity, state in self._states.items():
            if entity in batch.asleep:
                continue
            try:
                after[entity] = self._stepped(entity, state, batch, dt_s)
            except BaseException as error:
                if is_stopping(error) or not self._names:
                    raise
                batch.fail(entity, error)
        changed = [entity for entity, state in after.items() if state is not self._states[entity]]
        self._states |= after
        return changed

    def _stepped(self, entity: str, state: Any, batch: BatchStep, dt_s: float) -> Any:
        inputs: Sequence[Any] = batch.inputs.get(entity, ())
        if hasattr(self.alone, "advance"):
            after = self.alone.advance(state, inputs, dt_s, batch.step(entity))
        else:
            after = self.alone.step(state, inputs, dt_s)
        a_state("the step", after)
        wanted = None
        if hasattr(self.alone, "destination"):
            wanted = a_destination(self.alone.destination(after, batch.here, batch.ticks_here(entity)))
        wants_sleep = may_sleep(self.alone, after)
        batch.wish(entity, wanted)
        if wants_sleep:
            batch.sleep(entity)
        return after
