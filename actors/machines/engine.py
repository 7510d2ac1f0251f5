"""Which event a state machine handles next, and which timeouts run. Pure: time is an input.

There are three places for events. The mailbox is the runtime's, and the engine knows nothing of it. The queue has what
comes before the mailbox: events that the machine inserted, and those that were postponed and whose time has come. The
postponed wait for a change of state. When all actions of a transition are known, `commit` does it, in this order:

1. The event is postponed, if an action said so. Any event ends the event timeout.
2. If the state is another one, all that was postponed goes before the queue, oldest first, and the state timeout ends.
3. Timeouts are started and stopped. Those of no time wait in a line of their own, which comes after the queue, and
   before the mailbox.
4. Inserted events go before the queue, in their order.

Source: `gen_statem.erl` of OTP 25, `loop_state_transition` and what follows it; the transcripts in
`tests/actors/machines/otp_machines.txt` were recorded from it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

from batonpass.actors.machines.events import EventTimeout, MachineEvent, StateTimeout, TimeoutEvent, timeout_key
from batonpass.actors.machines.results import CancelTimeout, StartTimeout, UpdateTimeout

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Engine", "MachineStep", "MachineTimer", "PendingEvents", "TimeoutAction", "is_same"]

TimeoutAction: TypeAlias = StartTimeout | UpdateTimeout | CancelTimeout


def is_same(state: Any, other: Any) -> bool:
    """Whether two states are one, by Erlang's `=:=`: 1 and True are two, also inside of tuples."""
    if state is other:
        return True
    if type(state) is not type(other):
        return False
    if type(state) is tuple:
        return len(state) == len(other) and all(map(is_same, state, other))
    return bool(state == other)


@final
class MachineTimer:
    """One timeout that runs. `due_s` None: of no time, it waits for the queue to be empty."""

    __slots__ = ("due_s", "event", "key")

    def __init__(self, key: Hashable, event: TimeoutEvent, due_s: float | None) -> None:
        self.key = key
        self.event = event
        self.due_s = due_s


@final
class MachineStep:
    """What is known of the transition that one event causes, until it is done."""

    __slots__ = ("data", "event", "hibernate", "inserted", "old_state", "postpone", "state", "timeouts")

    def __init__(self, event: MachineEvent | None, state: Any, data: Any) -> None:
        self.event = event
        self.old_state = state
        self.state = state
        self.data = data
        self.postpone = False
        self.hibernate = False
        self.inserted: list[MachineEvent] = []
        self.timeouts: list[TimeoutAction] = []


@final
@dataclass(frozen=True, slots=True)
class PendingEvents:
    """What a machine has before it: events that wait for another state, oldest first, and timeouts that run."""

    postponed: tuple[MachineEvent, ...]
    timeouts: tuple[TimeoutEvent, ...]


@final
class Engine:
    """See the head of the module. `running` are the timeouts that have to fire: what starts or stops is told."""

    __slots__ = ("_at_once", "_postponed", "_queue", "running")

    def __init__(self) -> None:
        self.running: dict[Hashable, MachineTimer] = {}
        self._queue: deque[MachineEvent] = deque()
        self._postponed: list[MachineEvent] = []
        self._at_once: dict[Hashable, None] = {}

    @property
    def has_next(self) -> bool:
        """Whether there is an event that comes before the mailbox."""
        return bool(self._queue or self._at_once)

    @property
    def pending(self) -> PendingEvents | None:
        """What is postponed, and what runs; None if nothing does."""
        if not (self._postponed or self.running):
            return None
        return PendingEvents(tuple(self._postponed), tuple(timer.event for timer in self.running.values()))

    def take_next(self) -> MachineEvent:
        """The event that comes next, before the mailbox. There must be one."""
        if self._queue:
            return self._queue.popleft()
        key = next(iter(self._at_once))
        del self._at_once[key]
        return self.running.pop(key).event

    def fire(self, timer: MachineTimer) -> TimeoutEvent | None:
        """The time of `timer` is over: its event; None if it has been stopped or started anew meanwhile."""
        if self.running.get(timer.key) is not timer:
            return None
        del self.running[timer.key]
        return timer.event

    def commit(self, step: MachineStep, now_s: float) -> tuple[list[MachineTimer], list[MachineTimer]]:
        """Do a transition: which timers are to be stopped, and which to be started."""
        if not (step.postpone or step.inserted or step.timeouts or self.running or self._postponed):
            return _NOTHING  # by far the most frequent
        stopped: list[MachineTimer] = []
        if step.postpone and step.event is not None:
            self._postponed.append(step.event)
        self._stop(EventTimeout, stopped)
        if not is_same(step.state, step.old_state):
            self._queue.extendleft(reversed(self._postponed))
            self._postponed.clear()
            self._stop(StateTimeout, stopped)
        started = self._set_timeouts(step.timeouts, now_s, stopped) if step.timeouts else []
        self._queue.extendleft(reversed(step.inserted))
        return stopped, started

    def _stop(self, key: Hashable, stopped: list[MachineTimer]) -> None:
        timer = self.running.pop(key, None)
        if timer is None:
            return
        if timer.due_s is None:
            del self._at_once[key]
        else:
            stopped.append(timer)

    def _set_timeouts(
        self, actions: list[TimeoutAction], now_s: float, stopped: list[MachineTimer]
    ) -> list[MachineTimer]:
        # Of several about one timeout the last counts, and stands where it stood.
        latest = {timeout_key(_subject(action)): action for action in actions}
        started: list[MachineTimer] = []
        for action in actions:
            key = timeout_key(_subject(action))
            if latest[key] is not action:
                continue
            self._set_timeout(key, action, now_s, stopped, started)
        return started

    def _set_timeout(
        self,
        key: Hashable,
        action: TimeoutAction,
        now_s: float,
        stopped: list[MachineTimer],
        started: list[MachineTimer],
    ) -> None:
        if isinstance(action, UpdateTimeout) and key in self.running:
            self.running[key].event = action.event
            return
        self._stop(key, stopped)
        if isinstance(action, CancelTimeout):
            return
        due_s: float | None = None
        if isinstance(action, StartTimeout):
            if action.delay_s is None or action.delay_s == math.inf:
                return
            if action.absolute:
                due_s = action.delay_s
            elif action.delay_s != 0:
                due_s = now_s + action.delay_s
        timer = self.running[key] = MachineTimer(key, action.event, due_s)
        if due_s is None:
            self._at_once[key] = None
        else:
            started.append(timer)


_NOTHING: tuple[list[MachineTimer], list[MachineTimer]] = ([], [])


def _subject(action: TimeoutAction) -> Any:
    return action.timeout if isinstance(action, CancelTimeout) else action.event
