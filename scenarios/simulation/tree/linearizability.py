"""Is a history linearizable? The search of Wing and Gong, with Lowe's memory and partitioned by key.

A history is linearizable if every operation can be given an instant between its call and its return under one
condition. Carried out one by one in the order of these instants, the operations give the answers that were given
(Herlihy and Wing 1990). The search tries the orders that real time allows, and backs up when an answer does not fit
(Wing and Gong 1993). It remembers which sets of operations led to which state, and never tries such a pair twice (Lowe
2017, as in Knossos and Porcupine). A history of several keys is linearizable if that of each key is (Herlihy and Wing's
locality theorem). So keys are judged one by one, which is what makes this fast.

An operation whose outcome is unknown never returned: it may take effect at any time after its call, or never.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["MAX_CONFIGURATIONS", "NotLinearizable", "Operation", "Undecided", "check_linearizable"]

# A history of some hundred operations, a dozen of them at a time, needs a few thousand; beyond this it is hopeless.
MAX_CONFIGURATIONS: Final = 2_000_000

# (state, action) -> (next state, answer); must be pure, and states must be hashable
Apply = Callable[[Any, Any], tuple[Hashable, Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call and its answer. Times are of one clock, of any unit, and equal times count as simultaneous.

    `returned_at` is None when the outcome is unknown; `answer` then means nothing.
    """

    client: str
    key: str
    action: Any
    answer: Any
    called_at: float
    returned_at: float | None

    def __str__(self) -> str:
        """A line for a report."""
        returned = "never" if self.returned_at is None else f"{self.returned_at:g}"
        answer = "unknown" if self.returned_at is None else repr(self.answer)
        return f"[{self.called_at:g}, {returned}] {self.client}: {self.action} on {self.key} -> {answer}"


class NotLinearizable(Exception):
    """No order explains what the clients of one key were told.

    `key` is the key, `operations` all operations on it by their calls. `explained` is the longest beginning of an order
    that fits, and `state` what it led to. The answer that does not fit is usually the earliest return not in it.
    """

    def __init__(self, key: str, operations: Sequence[Operation], explained: Sequence[Operation], state: Any) -> None:
        placed = {id(operation) for operation in explained}
        missing = [operation for operation in operations if id(operation) not in placed and _returned(operation)]
        first = min(missing, key=_return_time)
        super().__init__(
            f"the history of {key!r} is not linearizable: after {len(explained)} of {len(operations)} operations the "
            f"value is {state!r:.200}, and nothing explains {first}"
        )
        self.key: Final = key
        self.operations: Final = tuple(operations)
        self.explained: Final = tuple(explained)
        self.state: Final = state


class Undecided(Exception):
    """The search was given up: too many operations at a time, most likely of unknown outcome."""


def check_linearizable(
    history: Iterable[Operation],
    apply: Apply,
    initial: Hashable,
    *,
    max_configurations: int = MAX_CONFIGURATIONS,
) -> None:
    """Return if the history is linearizable; raises `NotLinearizable`, or `Undecided` after too long a search.

    `apply` is the sequential specification of one key, `initial` the state that each key begins in.
    """
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    for key in sorted(by_key):
        operations = sorted(by_key[key], key=lambda operation: operation.called_at)
        _Search(operations, apply, initial, max_configurations).run()


class _CallEvent:
    """The call or the return of an operation, in a doubly linked ring from which placed operations are lifted."""

    __slots__ = ("bit", "is_call", "next", "operation", "previous", "return_event")

    def __init__(self, operation: Operation, bit: int, *, is_call: bool) -> None:
        self.operation = operation
        self.bit = bit
        self.is_call = is_call
        self.return_event: _CallEvent | None = None
        self.previous: _CallEvent = self
        self.next: _CallEvent = self


class _Search:
    """The search over one key."""

    def __init__(self, operations: list[Operation], apply: Apply, initial: Hashable, max_configurations: int) -> None:
        self._operations = operations
        self._apply = apply
        self._state = initial
        self._max_configurations = max_configurations
        self._to_place = sum(map(_returned, operations))
        self._placed_mask = 0
        self._placed: list[tuple[_CallEvent, Hashable]] = []
        self._seen: set[tuple[int, Hashable]] = set()
        self._best: tuple[int, list[Operation], Hashable] = (0, [], initial)
        self._head = _linked(operations)

    def run(self) -> None:
        event = self._head.next
        while self._to_place:  # so there is a return ahead, and the end of the list is never met
            if not event.is_call:
                event = self._back_up()
            elif self._try(event):
                event = self._head.next
            else:
                event = event.next

    def _try(self, call: _CallEvent) -> bool:
        """Place this operation next, if its answer fits and this was not tried before."""
        operation = call.operation
        state, answer = self._apply(self._state, operation.action)
        if _returned(operation):
            if answer != operation.answer:
                return False
        elif state == self._state:
            return False  # unknown, and without effect: placing it explains nothing
        mask = self._placed_mask | call.bit
        if (mask, state) in self._seen:
            return False
        if len(self._seen) >= self._max_configurations:
            raise Undecided(
                f"gave up on {operation.key!r} after {self._max_configurations} configurations of "
                f"{len(self._operations)} operations, {len(self._operations) - sum(map(_returned, self._operations))} "
                "of them of unknown outcome"
            )
        self._seen.add((mask, state))
        self._placed.append((call, self._state))
        self._placed_mask, self._state = mask, state
        self._to_place -= _returned(operation)
        _lift(call)
        return True

    def _back_up(self) -> _CallEvent:
        """Take the operation placed last out again, and continue behind its call."""
        returned = sum(_returned(call.operation) for call, _ in self._placed)
        if not self._best[1] or returned > self._best[0]:
            self._best = (returned, [call.operation for call, _ in self._placed], self._state)
        if not self._placed:
            _, explained, state = self._best
            raise NotLinearizable(self._operations[0].key, self._operations, explained, state)
        call, self._state = self._placed.pop()
        self._placed_mask &= ~call.bit
        self._to_place += _returned(call.operation)
        _put_back(call)
        return call.next


def _returned(operation: Operation) -> bool:
    return operation.returned_at is not None


def _return_time(operation: Operation) -> float:
    return float("inf") if operation.returned_at is None else operation.returned_at


def _linked(operations: list[Operation]) -> _CallEvent:
    """A ring of the calls and returns in the order of time, calls first where times are equal, behind its head."""
    events = []
    for position, operation in enumerate(operations):
        call = _CallEvent(operation, 1 << position, is_call=True)
        events.append((operation.called_at, 0, position, call))
        if operation.returned_at is not None:
            call.return_event = _CallEvent(operation, 1 << position, is_call=False)
            events.append((operation.returned_at, 1, position, call.return_event))
    events.sort(key=lambda event: event[:3])
    last = head = _CallEvent(Operation("", "", None, None, 0.0, 0.0), 0, is_call=False)
    for *_, event in events:
        last.next, event.previous = event, last
        last = event
    last.next, head.previous = head, last
    return head


def _lift(call: _CallEvent) -> None:
    """Take a call and its return out of the list; the two remember where they were."""
    for event in (call, call.return_event):
        if event is not None:
            event.previous.next = event.next
            event.next.previous = event.previous


def _put_back(call: _CallEvent) -> None:
    """Undo `_lift`, in the opposite order."""
    for event in (call.return_event, call):
        if event is not None:
            event.previous.next = event
            event.next.previous = event
