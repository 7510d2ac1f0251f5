"""What clients did and were told, and the judgement on it: lost, doubled or out of order. Pure.

Registers are judged by the search for a linearization (`scenarios.simulation.tree.linearizability`). Each round of a
run has registers of its own, so histories stay short. What a register held when its round ended must be there ever
after.

Counters live as long as the run. Every addition to one is submitted again, under its id, until it is answered, and is
answered with the sum. So the judgement is exact and cheap: the answers are 1, 2, 3, ... without a gap and without a
repetition, in an order that does not contradict real time. A gap is an addition applied twice or an unasked result, a
repetition is one lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.scenarios.simulation.tree.linearizability import (
    NotLinearizable,
    Operation,
    Undecided,
    check_linearizable,
)
from batonpass.scenarios.simulation.tree.registers import ABSENT, Get, Value, apply_action

__all__ = ["Addition", "CounterLedger", "RegisterLedger", "counter_problems"]

_NEVER: Final = float("inf")
# Good histories of a round need some thousands. Only a bad one is searched to the end, and it need not be to be found.
_MAX_CONFIGURATIONS: Final = 200_000


@dataclass(frozen=True)
class Addition:
    """One addition to a counter: when it was first asked for, when answered, and with which sum."""

    client: str
    called_at: float
    returned_at: float
    total: int


def counter_problems(counter: str, additions: Iterable[Addition], *, before: int = 0) -> list[str]:
    """What is wrong with these additions to a counter that stood at `before`; they are all there were."""
    ordered = sorted(additions, key=lambda addition: addition.total)
    problems = []
    for expected, addition in enumerate(ordered, start=before + 1):
        if addition.total != expected:
            what = "twice: one addition was lost" if addition.total < expected else "without the one before it"
            problems.append(
                f"{counter}: {addition.client} was told {addition.total} {what} "
                f"({len(ordered)} additions on top of {before})"
            )
            break
    earliest_return = _NEVER
    for addition in reversed(ordered):
        if earliest_return < addition.called_at:
            problems.append(
                f"{counter}: {addition.client} was told {addition.total} although a higher sum was told before it asked"
            )
            break
        earliest_return = min(earliest_return, addition.returned_at)
    return problems


@dataclass
class CounterLedger:
    """The additions to all counters since they were judged last, and where each stood then."""

    totals: dict[str, int] = field(default_factory=dict)
    _additions: dict[str, list[Addition]] = field(default_factory=dict)

    def add(self, counter: str, addition: Addition) -> None:
        """An addition was answered."""
        self._additions.setdefault(counter, []).append(addition)

    def judge(self, found: Mapping[str, int | None]) -> list[str]:
        """What is wrong, given what the counters hold now, while no client adds. Afterwards the ledger begins anew."""
        problems = []
        for counter in sorted(self._additions.keys() | self.totals.keys()):
            additions = self._additions.get(counter, [])
            before = self.totals.get(counter, 0)
            problems += counter_problems(counter, additions, before=before)
            total = found.get(counter) or 0
            if total != before + len(additions):
                problems.append(
                    f"{counter} holds {total} after {before + len(additions)} additions, all of them acknowledged"
                )
            self.totals[counter] = total
        self._additions.clear()
        return problems


@dataclass
class RegisterLedger:
    """The history of all registers of a run, and what each is known to hold since its round ended."""

    settled: dict[str, Value] = field(default_factory=dict)
    _histories: dict[str, list[Operation]] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def add(self, operation: Operation) -> None:
        """An operation was answered, or given up without an answer."""
        self._histories.setdefault(operation.key, []).append(operation)
        self._open.add(operation.key)

    def judge(self, found: Mapping[str, Any], now: float, by: str) -> dict[str, str]:
        """What is wrong, by register, given what they all hold now, as seen by `by`, while no client does anything.

        A register of an earlier round that changed since is judged anew. A write of unknown outcome may have taken
        effect late, which is allowed; anything else is not.
        """
        changed = {key for key, value in self.settled.items() if found.get(key, ABSENT) != value}
        problems = {}
        for key in sorted(self._open | changed):
            history = self._histories[key]
            history.append(Operation(by, key, Get(), found.get(key, ABSENT), now, now))
            problem = _register_problem(history)
            self.settled[key] = found.get(key, ABSENT)
            if problem is not None:
                problems[key] = problem
            elif all(operation.returned_at is not None for operation in history):
                # Nothing can change it any more, so what it holds is all that has to be known.
                self._histories[key] = history[-1:]
        self._open.clear()
        return problems

    def history_of(self, key: str) -> tuple[Operation, ...]:
        """The operations on a register that are still known."""
        return tuple(self._histories.get(key, ()))


def _register_problem(history: list[Operation]) -> str | None:
    try:
        check_linearizable(history, apply_action, ABSENT, max_configurations=_MAX_CONFIGURATIONS)
    except NotLinearizable as error:
        return str(error)
    except Undecided as error:
        return f"cannot be judged: {error}"
    return None
