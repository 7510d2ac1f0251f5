"""Explicit-state search: every state that a small model can reach, breadth first, so that what breaks breaks shortest.

A model says where it begins and which steps each state allows. The search visits each state once and judges two things:

1. *Safety*: no step breaks a promise. The first one that does is the end of a shortest way to any.
2. *Recovery*: from every state there is a way, by steps that are free (no fault, no new request), to a settled one.

States must be hashable and canonical: two that differ only in what cannot matter must be equal. The order of steps must
not depend on hash seeds; then the numbers of states, of transitions and the counterexamples are the same everywhere.

Prior art: the explicit-state model checkers (Holzmann's SPIN, Yu, Manolios and Lamport's TLC). Unlike theirs, the model
here is the program: steps call the machines that servers run.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

__all__ = ["Model", "Search", "SearchStep", "SearchViolation", "TooManyStates"]

S = TypeVar("S", bound=Hashable)

_PROGRESS_EVERY: Final = 2048
_NOBODY: Final = -1


class TooManyStates(Exception):
    """The model has more states than the search was allowed; tighten its bounds or raise `max_states`."""

    def __init__(self, max_states: int) -> None:
        super().__init__(f"more than {max_states:,} states; allow fewer faults, or more states with --max-states")
        self.max_states: Final = max_states


class SearchStep(NamedTuple):
    """One thing that may happen: what, and the state after it.

    `is_free` says that it is no fault and no new request, so that recovery may count on it. `violation` is the
    sentence about the promise that this step breaks, or empty.
    """

    action: tuple[Any, ...]
    state: Any
    is_free: bool
    violation: str


class Model(Protocol[S]):
    """What can be searched."""

    def initial(self) -> S:
        """Where it begins."""

    def steps(self, state: S) -> Iterable[SearchStep]:
        """Everything that may happen next, always in the same order."""

    def is_settled(self, state: S) -> bool:
        """Whether this is where recovery is to lead."""

    def must_recover(self, state: S) -> bool:
        """Whether recovery is promised from here."""

    def tell(self, state: S, action: tuple[Any, ...]) -> str:
        """An action in `state` as a line of a transcript."""

    def describe(self, state: S) -> list[str]:
        """A state as lines of a transcript."""


@dataclass(frozen=True, slots=True)
class SearchViolation:
    """A broken promise, and the shortest way to it, line by line."""

    kind: str
    sentence: str
    transcript: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return {"kind": self.kind, "sentence": self.sentence, "transcript": list(self.transcript)}


class Search(Generic[S]):
    """One search of one model. `run` it once; afterwards the figures say what was seen.

    Args:
        max_states: beyond this the search gives up; some 500 bytes each.
        progress: told the numbers of states, of transitions and the depth, every few thousand states.
    """

    def __init__(
        self, model: Model[S], *, max_states: int = 5_000_000, progress: Callable[[int, int, int], None] | None = None
    ) -> None:
        self._model: Final = model
        self._max_states: Final = max_states
        self._progress: Final = progress
        self._numbers: dict[S, int] = {}
        self._states: list[S] = []
        self._parents = array("q")
        # Free steps, as pairs of numbers of states: all that recovery needs.
        self._free_from, self._free_to = array("q"), array("q")
        self.transitions = 0
        self.depth = 0
        self.settled = 0
        self.violation: SearchViolation | None = None

    @property
    def states(self) -> int:
        """How many different states were reached."""
        return len(self._states)

    def run(self) -> SearchViolation | None:
        """Visit everything; the first violation of safety, else the nearest state without recovery, else None.

        Raises:
            TooManyStates: there are more than `max_states`.
        """
        self._add(self._model.initial(), _NOBODY)
        self.violation = self._visit_all() or self._find_stuck()
        return self.violation

    def _add(self, state: S, parent: int) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = len(self._states)
            if number >= self._max_states:
                raise TooManyStates(self._max_states)
            self._numbers[state] = number
            self._states.append(state)
            self._parents.append(parent)
        return number

    def _visit_all(self) -> SearchViolation | None:
        number, end_of_level = 0, 1
        while number < len(self._states):
            if number == end_of_level:
                self.depth, end_of_level = self.depth + 1, len(self._states)
            if self._progress is not None and number % _PROGRESS_EVERY == 0:
                self._progress(number, self.transitions, self.depth)
            for step in self._model.steps(self._states[number]):
                self.transitions += 1
                if step.violation:
                    return self._violated("safety", step.violation, number, step)
                successor = self._add(step.state, number)
                if step.is_free and successor != number:
                    self._free_from.append(number)
                    self._free_to.append(successor)
            number += 1
        return None

    def _find_stuck(self) -> SearchViolation | None:
        """Walk the free steps backwards from the settled states; the nearest state that this misses."""
        recovers = bytearray(len(self._states))
        found = [number for number, state in enumerate(self._states) if self._model.is_settled(state)]
        self.settled = len(found)
        first, sources = self._reversed()
        for number in found:
            recovers[number] = 1
        while found:
            number = found.pop()
            for source in sources[first[number] : first[number + 1]]:
                if not recovers[source]:
                    recovers[source] = 1
                    found.append(source)
        for number, state in enumerate(self._states):
            if not recovers[number] and self._model.must_recover(state):
                sentence = "from here no order of deliveries and timers leads to exactly one authority"
                return self._violated("recovery", sentence, number, None)
        return None

    def _reversed(self) -> "tuple[array[int], array[int]]":
        """The free steps by where they lead to: `sources[first[n]:first[n + 1]]` are the states before state n."""
        first = array("q", bytes(8 * (len(self._states) + 1)))
        for number in self._free_to:
            first[number + 1] += 1
        for number in range(len(self._states)):
            first[number + 1] += first[number]
        place, sources = array("q", first), array("q", bytes(8 * len(self._free_to)))
        for source, target in zip(self._free_from, self._free_to, strict=True):
            sources[place[target]] = source
            place[target] += 1
        return first, sources

    # --- transcripts -----------------------------------------------------------------------------------------------

    def _violated(self, kind: str, sentence: str, number: int, last: SearchStep | None) -> SearchViolation:
        lines = [f"{place:3}  {line}" for place, line in enumerate(self._way_to(number, last), 1)]
        end = self._states[number] if last is None else last.state
        return SearchViolation(kind, sentence, (*lines, *(f"     {line}" for line in self._model.describe(end))))

    def _way_to(self, number: int, last: SearchStep | None) -> Iterator[str]:
        way = [number]
        while self._parents[way[-1]] != _NOBODY:
            way.append(self._parents[way[-1]])
        way.reverse()
        for before, after in pairwise(way):
            state = self._states[before]
            step = next(step for step in self._model.steps(state) if step.state == self._states[after])
            yield self._model.tell(state, step.action)
        if last is not None:
            yield self._model.tell(self._states[number], last.action)
