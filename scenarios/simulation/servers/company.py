"""What is done for many at once, on virtual time: parcels with more than one message, and combiners.

In place of `actors.base.batcher.Batcher`, which waits for one turn of trio's scheduler: here everything that comes at
one instant of virtual time comes together.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from batonpass.authority.wire.batch import MAX_BATCH
from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.tasks import AwaitedAnswer, SimulatedProcess

__all__ = ["Alone", "SimulatedBatch", "SimulatedOutbox", "VirtualCombiner"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SimulatedBatch:
    """Several messages, or answers, that travel as one."""

    messages: tuple[Any, ...]


class VirtualCombiner(Generic[Item, Result]):
    """As `Batcher`."""

    def __init__(
        self,
        process: SimulatedProcess,
        perform: Callable[[list[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        most: int = MAX_BATCH,
    ) -> None:
        self._process: Final = process
        self._perform: Final = perform
        self._most: Final = most
        self._waiting: list[tuple[Item, AwaitedAnswer]] = []

    async def do(self, item: Item) -> Result:
        """As `Batcher.do`."""
        answer = AwaitedAnswer()
        self._waiting.append((item, answer))
        if len(self._waiting) == 1:
            self._process.after(0.0, lambda: self._process.start_soon(self._do_for_all))
        result: Result = await answer.wait()
        return result

    async def _do_for_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), self._most):
            self._process.start_soon(self._do_for, waiting[first : first + self._most])

    async def _do_for(self, together: list[tuple[Item, AwaitedAnswer]]) -> None:
        outcomes: Sequence[Result | Exception]
        try:
            outcomes = await self._perform([item for item, _ in together])
        except Exception as error:
            outcomes = [error] * len(together)
        for (_, answer), outcome in zip(together, outcomes, strict=True):
            if isinstance(outcome, Exception):
                answer.fail(outcome)
            else:
                answer.give(outcome)


class Alone(Generic[Item, Result]):
    """In place of `Batcher` where nothing shares anything: each is done by itself, at once."""

    def __init__(self, perform: Callable[[list[Item]], Awaitable[Sequence[Result | Exception]]]) -> None:
        self._perform: Final = perform

    async def do(self, item: Item) -> Result:
        """As `Batcher.do`."""
        (outcome,) = await self._perform([item])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class SimulatedOutbox:
    """What one process sends to one receiver at the same instant leaves as one batch, if `in_company`."""

    def __init__(
        self, process: SimulatedProcess, mail: SimulatedMail, *, in_company: bool, most: int = MAX_BATCH
    ) -> None:
        self._most: Final = most
        self._process: Final = process
        self._mail: Final = mail
        self._in_company: Final = in_company
        self._waiting: dict[str, list[Any]] = {}

    def forget(self) -> None:
        """The process begins again: what it had not sent is lost."""
        self._waiting.clear()

    def send(self, to: str, message: Any) -> None:
        """Send a message, now or with what else is sent at this instant."""
        if not self._in_company:
            self._mail.send(self._process.name, to, message)
            return
        waiting = self._waiting.setdefault(to, [])
        waiting.append(message)
        if len(waiting) == 1:
            self._process.after(0.0, lambda: self._leave(to))

    def _leave(self, to: str) -> None:
        waiting = self._waiting.pop(to, [])
        for first in range(0, len(waiting), self._most):
            together = tuple(waiting[first : first + self._most])
            self._mail.send(self._process.name, to, together[0] if len(together) == 1 else SimulatedBatch(together))
