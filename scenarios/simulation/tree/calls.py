"""What clients do during a run, and what they were told: the histories that are judged afterwards.

A client does one thing after the other. It calls a member, waits, and when it hears nothing in time calls another one,
under the same number. What it never hears of stays open in the history.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from batonpass.scenarios.simulation.kernel.schedule import Schedule
from batonpass.scenarios.simulation.tree.linearizability import Operation
from batonpass.scenarios.simulation.tree.registers import Action, Append, CompareAndSwap, Get, RegisterPut, Value

__all__ = ["CallHistory", "Client", "Service", "TreeCall"]

KEYS: Final = ("x", "y", "z")
THINK_S: Final = 0.08
PATIENCE_S: Final = 1.2
MAX_ATTEMPTS: Final = 4


@dataclass(slots=True, eq=False)
class TreeCall:
    """One operation of one client, until it is answered or given up."""

    client: str
    number: int
    key: str
    action: Action
    called_at: int
    attempts: int = 0
    member: str = ""
    returned_at: int | None = None
    answer: Value | bool = None

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing."""
        return isinstance(self.action, Get)

    @property
    def command_id(self) -> tuple[str, int]:
        """What makes it one command however often it is submitted."""
        return (self.client, self.number)


@dataclass(slots=True)
class CallHistory:
    """All calls of a run. Its clock counts calls and answers, so that no two of them are simultaneous."""

    calls: list[TreeCall] = field(default_factory=list)
    clock: int = 0

    def called(self, client: str, number: int, key: str, action: Action) -> TreeCall:
        """A client begins something."""
        self.clock += 1
        call = TreeCall(client, number, key, action, self.clock)
        self.calls.append(call)
        return call

    def returned(self, call: TreeCall, answer: Value | bool) -> None:
        """It was answered."""
        self.clock += 1
        call.returned_at, call.answer = self.clock, answer

    def operations(self) -> list[Operation]:
        """As the judge wants them. A read that was not answered says nothing."""
        return [
            Operation(call.client, call.key, call.action, call.answer, call.called_at, call.returned_at)
            for call in self.calls
            if call.returned_at is not None or not call.is_read
        ]


class Service(Protocol):
    """What clients see of the cluster."""

    def reachable(self) -> list[str]:
        """The members that can be called."""

    def submit(self, name: str, call: TreeCall) -> None:
        """Call a member; `Client.answered` comes later, perhaps never."""

    def withdraw(self, name: str, call: TreeCall) -> None:
        """Wait no more for this member's answer."""


class Client:
    """One client. Values that it writes are unique."""

    def __init__(
        self,
        name: str,
        schedule: Schedule,
        dice: random.Random,
        history: CallHistory,
        service: Service,
    ) -> None:
        self.name: Final = name
        self._schedule: Final = schedule
        self._dice: Final = dice
        self._history: Final = history
        self._service: Final = service
        self._number = 0
        self._seen: dict[str, Value] = {}
        self._call: TreeCall | None = None
        self.resting = False

    @property
    def idle(self) -> bool:
        """Whether it waits for nothing."""
        return self._call is None

    def think(self) -> None:
        """Do the next thing after a while."""
        self._schedule.after(self._dice.expovariate(1 / THINK_S), self._begin)

    def answered(self, call: TreeCall, answer: Value | bool) -> None:
        """A member answered; only the first answer counts."""
        if call is not self._call:
            return
        self._call = None
        self._history.returned(call, answer)
        self._learn(call, answer)
        self._service.withdraw(call.member, call)
        self.think()

    def lost_member(self, name: str) -> None:
        """The process of a member ended; its client knows."""
        call = self._call
        if call is not None and call.member == name:
            self._schedule.after(self._dice.uniform(0.005, 0.2), self._when_still(call, call.attempts, self._try))

    def _begin(self) -> None:
        if self.resting:
            return
        self._number += 1
        key = self._dice.choice(KEYS)
        self._call = self._history.called(self.name, self._number, key, self._next_action(key))
        self._try(self._call)

    def _next_action(self, key: str) -> Action:
        roll, value = self._dice.random(), f"{self.name}.{self._number};"
        if roll < 0.4:
            return Get()
        if roll < 0.6:
            return RegisterPut(value)
        return CompareAndSwap(self._seen.get(key), value) if roll < 0.75 else Append(value)

    def _try(self, call: TreeCall) -> None:
        members = self._service.reachable()
        if call.attempts >= MAX_ATTEMPTS:
            self._call = None
            self.think()
            return
        call.attempts += 1
        if members:
            call.member = self._dice.choice(members)
            self._service.submit(call.member, call)
        self._schedule.after(PATIENCE_S, self._when_still(call, call.attempts, self._impatient))

    def _impatient(self, call: TreeCall) -> None:
        if call.member:
            self._service.withdraw(call.member, call)
        self._try(call)

    def _when_still(self, call: TreeCall, attempt: int, action: Callable[[TreeCall], None]) -> Callable[[], None]:
        def act() -> None:
            if self._call is call and call.attempts == attempt:
                action(call)

        return act

    def _learn(self, call: TreeCall, answer: Value | bool) -> None:
        match call.action:
            case RegisterPut(value):
                self._seen[call.key] = value
            case CompareAndSwap(_, value) if answer is True:
                self._seen[call.key] = value
            case Get() | Append() if not isinstance(answer, bool):
                self._seen[call.key] = answer
            case _:
                self._seen.pop(call.key, None)
