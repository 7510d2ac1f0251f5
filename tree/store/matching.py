"""Matching: which nodes a pattern means.

A pattern is run over the tree as a nondeterministic automaton whose states are positions in the pattern, kept as the
bits of an integer. A node reached by several ways (`**/**`) is visited and reported once, and the work for one node is
at most one condition per component. Where a name is known, its child is looked up and the others are not touched.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from batonpass.tree.data.errors import BadPattern
from batonpass.tree.data.node import Node, NodeView
from batonpass.tree.data.path import ROOT, Path
from batonpass.tree.data.work_budget import WorkBudget, steps_of_data
from batonpass.tree.store.conditions import Condition, Judged, only_name
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, Pattern, Resolved, resolve

__all__ = ["MAX_EVENT_STEPS", "ByPrefix", "EventPattern", "PathFilter", "find_matches"]

T = TypeVar("T")

# What an event may cost for each pattern that it is compared with; see `tree.data.work_budget`. Enough for a name and a
# regular expression, or for seven names.
MAX_EVENT_STEPS: Final = 8

_SOME_NODE: Final = NodeView(None, 1, 1, 0)


def find_matches(
    root: Node, pattern: Resolved, after: Path | None = None, effort: WorkBudget | None = None
) -> Iterator[tuple[Path, Node]]:
    """The nodes that match, parents first, siblings by name: in the order of their paths.

    With `after`, only those that come after that path, found without visiting what comes before. Each node that is
    visited takes of the `effort`, if one is given; raises `TooMuch` when it is used up.
    """
    effort = effort or WorkBudget()
    if not pattern and after is None:
        yield ROOT, root
    end = 1 << len(pattern)
    pins = [component if isinstance(component, str) else only_name(component) for component in pattern]

    def below(path: Path, node: Node, states: int) -> Iterator[tuple[Path, Node, int]]:
        """The children that the pattern continues with; each is looked at when it is its turn and not before."""
        steps, readings = _costs(pattern, states)
        names = list(_candidates(pins, states, node))
        effort.take_sorting(len(names))
        names.sort()
        for name in names:
            child_path = (*path, name)
            if after is None or child_path > after or after[: len(child_path)] == child_path:
                child = node.children[name]
                effort.take(steps + readings * steps_of_data(child.encoded) if readings else steps)
                reached = _advance(pattern, states, child, name)
                if reached:
                    yield child_path, child, reached

    stack = [below(ROOT, root, 1)] if pattern else []
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            continue
        path, node, states = step
        if states & end and (after is None or path > after):
            yield path, node
        if node.children and states & (end - 1):
            stack.append(below(path, node, states))


def _costs(pattern: Resolved, states: int) -> tuple[int, int]:
    """What a step from these states to one child takes: steps, and how often its data is read."""
    steps = readings = 0
    for position, component in enumerate(pattern):
        if states >> position & 1:
            if isinstance(component, str):
                steps += 1
            else:
                steps += component.steps
                readings += component.readings
    return steps, readings


def _candidates(pins: list[str | None], states: int, node: Node) -> Iterator[str]:
    """The children that may lead on: one or a few by name, or all."""
    wanted: set[str] = set()
    for position, pin in enumerate(pins):
        if states >> position & 1:
            if pin is None:
                yield from node.children
                return
            wanted.add(pin)
    yield from (name for name in wanted if name in node.children)


def _advance(pattern: Resolved, states: int, node: Judged, name: str) -> int:
    """The states after the step to this child."""
    reached = 0
    for position, component in enumerate(pattern):
        if states >> position & 1:
            if isinstance(component, str):
                if component == name:
                    reached |= 2 << position
            else:
                if component.holds(node, name):
                    reached |= 2 << position
                if component.recursive:
                    reached |= 1 << position
    return reached


class PathFilter:
    """Which paths a pattern could be about, by names alone: for deciding which watchers a change concerns.

    Conditions on more than names count as met, so this may say yes where `find_matches` says no, never the reverse.
    """

    def __init__(self, pattern: Resolved) -> None:
        self._pattern: Final = tuple(map(_names_of, pattern))
        names = []
        for component in self._pattern:
            if not isinstance(component, str):
                break
            names.append(component)
        # The names that the pattern begins with.
        self.prefix: Final[Path] = tuple(names)
        # What it takes to compare a name with it, at most.
        self.steps: Final = sum(1 if isinstance(part, str) else part.steps for part in self._pattern)
        # The states reached through a component that looks at contents, and the last one.
        self._decisive: Final = sum(
            {1 << len(pattern)}
            | {2 << position for position, component in enumerate(pattern) if _looks_at_contents(component)}
        )

    def concerns(self, path: Path) -> bool:
        """Whether a node at this path could match, or decide by its contents whether others do."""
        states = 1
        for name in path:
            states = _advance(self._pattern, states, _SOME_NODE, name)
            if not states:
                return False
        return bool(states & self._decisive)


def _looks_at_contents(component: str | Condition) -> bool:
    return not isinstance(component, str) and not component.names_only


def _names_of(component: str | Condition) -> str | Condition:
    """What the component says about names."""
    if isinstance(component, str) or component.names_only:
        return component
    name = only_name(component)
    if name is not None:
        return name
    return ANY_DEPTH if component.recursive else ANY_NAME


class ByPrefix(Generic[T]):
    """Things that are about paths with a common beginning, found by a path without looking at the others."""

    def __init__(self) -> None:
        self._things: dict[Path, dict[T, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._things)

    def __len__(self) -> int:
        return sum(map(len, self._things.values()))

    def __iter__(self) -> Iterator[T]:
        for things in list(self._things.values()):
            yield from list(things)

    def add(self, prefix: Path, thing: T) -> None:
        """The thing is about paths that begin so."""
        self._things.setdefault(prefix, {})[thing] = None

    def discard(self, prefix: Path, thing: T) -> None:
        """The thing is not about these paths any more, if it was."""
        things = self._things.get(prefix)
        if things is not None:
            things.pop(thing, None)
            if not things:
                del self._things[prefix]

    def about(self, path: Path) -> list[T]:
        """The things about this path: those with the shortest prefix first, then in the order in which they came."""
        found: list[T] = []
        if self._things:
            for length in range(len(path) + 1):
                found.extend(self._things.get(path[:length], ()))
        return found


class EventPattern:
    """A pattern that events are matched against: long after the event, without the tree.

    So its parents are told by names alone; conditions on the contents may stand on the last component, and are
    evaluated on the node after the change (before it, if it went away).
    """

    def __init__(self, pattern: Pattern) -> None:
        """Raises `BadPattern` when a parent is told by more than names, `BadPath` as `resolve` does."""
        self._resolved: Final = resolve(pattern)
        for component in self._resolved[:-1]:
            if _looks_at_contents(component):
                raise BadPattern(
                    "in a pattern for events, conditions on a node's contents may stand on the last component only"
                )
        names = PathFilter(self._resolved)
        self.prefix: Final = names.prefix
        # What it takes to compare a name with it, at most, and how often the data is read.
        self._steps: Final = names.steps
        self._readings: Final = sum(part.readings for part in self._resolved if isinstance(part, Condition))
        self._end: Final = 1 << len(self._resolved)
        self._exact: Final = len(self.prefix) == len(self._resolved) and not any(
            isinstance(component, Condition) for component in self._resolved
        )

    def check_parts(self) -> None:
        """Raises `BadPattern` if telling whether an event is meant takes more than `MAX_EVENT_STEPS`.

        For those who ask to be told: each commit pays for all of them. What was registered before stays.
        """
        steps = sum(component.steps for component in self._resolved if isinstance(component, Condition))
        if steps > MAX_EVENT_STEPS:
            raise BadPattern(
                f"a pattern for events has at most {MAX_EVENT_STEPS} parts of conditions, not {steps} (a regular "
                "expression counts as 4, a shape as one per 64 bytes): watch with a simpler one, and choose among the "
                "events",
                {"parts": steps, "limit": MAX_EVENT_STEPS},
            )

    def steps_on(self, path: Path, encoded: bytes | None) -> int:
        """What `matches` takes for an event at this path with this payload, at most; see `tree.data.work_budget`."""
        if self._exact:
            return 1
        return self._steps * len(path) + (self._readings * steps_of_data(encoded) if self._readings else 0)

    def matches(self, path: Path, node: Judged) -> bool:
        """Whether an event at this path, that left (or took away) this node, is meant."""
        if self._exact:
            return path == self.prefix
        if not path:
            return not self._resolved
        states = 1
        for name in path[:-1]:
            # What the last component says of a parent does not matter: nothing comes after it.
            states = _advance(self._resolved, states, _SOME_NODE, name) & (self._end - 1)
            if not states:
                return False
        return bool(_advance(self._resolved, states, node, path[-1]) & self._end)
