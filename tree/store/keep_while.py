"""keep_while: nodes that stay only while something holds elsewhere in the tree.

A node (the *watcher*) is given pairs of a pattern and a condition. Each pair holds if every node that the pattern
matches meets the condition. If it matches none, the pair holds if the condition holds of a missing node (of which only
its absence is known). The pairs are looked at again whenever a node that they could be about has changed. That is one
whose path matches, by names, the pattern or a beginning of it that ends in a condition on contents. The watcher is
deleted with its subtree as soon as one fails. What a new node states about itself and what is below it is looked at
only then.

The index here answers which watchers a change at this path concerns. It finds them by the path itself for watched
paths, and by the names that a watched pattern begins with for the others. So a write pays only for those that watch its
neighbourhood.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from batonpass.tree.data.errors import BadData, KeepWhileConditionsNotMet, TreeError
from batonpass.tree.data.node import Node, view_of
from batonpass.tree.data.path import ROOT, Path
from batonpass.tree.data.work_budget import WorkBudget
from batonpass.tree.store.condition_reader import condition_from_data_untrusted
from batonpass.tree.store.conditions import Condition, check_condition
from batonpass.tree.store.matching import PathFilter, find_matches
from batonpass.tree.store.pattern import Pattern, Resolved, pattern_from_data_untrusted, pattern_to_data, resolve

__all__ = [
    "MAX_PAIRS",
    "KeepWhile",
    "KeepWhileIndex",
    "Pairs",
    "keep_while_from_data_untrusted",
    "keep_while_to_data",
    "resolve_pairs",
    "steps_of_pairs",
    "unmet",
]

# How much one node's staying may depend on.
MAX_PAIRS: Final = 64

# What it takes to note a pair, or to forget it, besides its components.
_STEPS_PER_PAIR: Final = 8

# What callers give: pairs, or a map; patterns that begin with THIS or PARENT are relative to the node.
# The keys of a map are patterns too; mappings are invariant in their keys, so their type cannot say it.
KeepWhile = Mapping[Any, Condition] | Iterable[tuple[Pattern, Condition]]
# Absolute, and in the order in which they were given.
Pairs = tuple[tuple[Resolved, Condition], ...]


def resolve_pairs(watcher: Path, keep_while: KeepWhile) -> Pairs:
    """Absolute pairs for this node; raises `BadPath`, `BadPattern`, or `BadData` when there are too many."""
    given = keep_while.items() if isinstance(keep_while, Mapping) else keep_while
    pairs = tuple((resolve(pattern, watcher), condition) for pattern, condition in given)
    for _, condition in pairs:
        check_condition(condition)
    if len(pairs) > MAX_PAIRS:
        raise BadData(f"{len(pairs)} keep_while conditions are too many; at most {MAX_PAIRS} are allowed")
    return pairs


def steps_of_pairs(pairs: Pairs) -> int:
    """What it takes to note these pairs in the index, or to forget them; see `tree.data.work_budget`."""
    return sum(_STEPS_PER_PAIR + len(pattern) for pattern, _ in pairs)


def keep_while_to_data(pairs: Iterable[tuple[Pattern, Condition]]) -> list[Any]:
    """As plain data."""
    return [[pattern_to_data(pattern), condition.to_data()] for pattern, condition in pairs]


def keep_while_from_data_untrusted(data: Any) -> tuple[tuple[Pattern, Condition], ...]:
    """Read a list of [pattern, condition]; raises `BadData`."""
    if not isinstance(data, list) or len(data) > MAX_PAIRS:
        raise BadData(f"keep_while is a list of at most {MAX_PAIRS} pairs of a pattern and a condition")
    pairs = []
    for pair in data:
        match pair:
            case [pattern, condition]:
                try:
                    pairs.append((pattern_from_data_untrusted(pattern), condition_from_data_untrusted(condition)))
                except TreeError as error:
                    raise BadData(error.message) from error
            case _:
                raise BadData(f"not a pair of a pattern and a condition: {pair!r:.100}")
    return tuple(pairs)


def unmet(root: Node, pairs: Pairs, effort: WorkBudget) -> dict[str, Any] | None:
    """The first thing that does not hold, as plain data for people; None if all is well. Raises `TooMuch`."""
    for pattern, condition in pairs:
        found = False
        effort.take(condition.steps)
        for path, node in find_matches(root, pattern, None, effort):
            found = True
            effort.take(condition.steps_on(node))
            if not condition.holds(node, path[-1] if path else ""):
                return _reason("condition_not_met", pattern, condition) | {
                    "path": list(path),
                    "node_props": view_of(node).to_data(),
                }
        if not found and not condition.holds(None, _last_name(pattern)):
            return _reason("pattern_matches_no_nodes", pattern, condition)
    return None


def _last_name(pattern: Resolved) -> str:
    last = pattern[-1] if pattern else ""
    return last if isinstance(last, str) else ""


def _reason(kind: str, pattern: Resolved, condition: Condition) -> dict[str, Any]:
    return {"reason": kind, "pattern": pattern_to_data(pattern), "condition": condition.to_data()}


def refuse_unmet(root: Node, watcher: Path, pairs: Pairs, effort: WorkBudget, *, is_new: bool) -> None:
    """Raises `KeepWhileConditionsNotMet` unless all pairs hold, and `TooMuch`.

    Of a new node, what it watches on itself and below is not looked at: nothing could be there yet.
    """
    if is_new:
        pairs = tuple(pair for pair in pairs if PathFilter(pair[0]).prefix[: len(watcher)] != watcher)
    reason = unmet(root, pairs, effort)
    if reason is not None:
        raise KeepWhileConditionsNotMet(
            f"the node {'/'.join(watcher)} would be kept while something holds that does not hold now",
            {"node_name": watcher[-1], "node_path": list(watcher), "reason": reason},
        )


class KeepWhileIndex:
    """Who is kept while what, and whom a change concerns."""

    def __init__(self) -> None:
        self.pairs: Final[dict[Path, Pairs]] = {}
        self._by_path: Final[dict[Path, dict[Path, None]]] = {}
        self._by_prefix: Final[dict[Path, dict[Path, tuple[PathFilter, ...]]]] = {}

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def replace(self, watcher: Path, pairs: Pairs) -> Pairs:
        """Replace what this node is kept while (nothing: no conditions); what it was before."""
        before = self.pairs.pop(watcher, ())
        for pattern, _ in before:
            self._forget(watcher, PathFilter(pattern), pattern)
        if pairs:
            self.pairs[watcher] = pairs
        for pattern, _ in pairs:
            self._remember(watcher, PathFilter(pattern), pattern)
        return before

    def concerned(self, changed: Iterable[Path], effort: WorkBudget) -> set[Path]:
        """The watchers that a change at any of these paths could make fail; raises `TooMuch`."""
        concerned: set[Path] = set()
        for path in changed:
            watchers = self._by_path.get(path, ())
            effort.take(len(path) + len(watchers))
            concerned.update(watchers)
            for length in range(len(path) + 1 if self._by_prefix else 0):
                for watcher, filters in self._by_prefix.get(path[:length], {}).items():
                    effort.take(1)
                    if watcher not in concerned and _any_concerns(filters, path, effort):
                        concerned.add(watcher)
        return concerned

    def _remember(self, watcher: Path, watched: PathFilter, pattern: Resolved) -> None:
        for path in _watched_paths(pattern, watched.prefix):
            self._by_path.setdefault(path, {})[watcher] = None
        if len(watched.prefix) < len(pattern):
            filters = self._by_prefix.setdefault(watched.prefix, {})
            filters[watcher] = (*filters.get(watcher, ()), watched)

    def _forget(self, watcher: Path, watched: PathFilter, pattern: Resolved) -> None:
        for path in _watched_paths(pattern, watched.prefix):
            watchers = self._by_path.get(path)
            if watchers is not None:
                watchers.pop(watcher, None)
                if not watchers:
                    del self._by_path[path]
        filters = self._by_prefix.get(watched.prefix)
        if filters is not None:
            filters.pop(watcher, None)
            if not filters:
                del self._by_prefix[watched.prefix]


def _any_concerns(filters: Iterable[PathFilter], path: Path, effort: WorkBudget) -> bool:
    for watched in filters:
        effort.take(watched.steps * len(path) + 1)
        if watched.concerns(path):
            return True
    return False


def _watched_paths(pattern: Resolved, prefix: Path) -> list[Path]:
    """The exact paths whose change matters: the last one, and parents on whose contents a condition stands."""
    if not pattern:
        return [ROOT]
    return [
        prefix[: level + 1]
        for level, component in enumerate(pattern[: len(prefix)])
        if level + 1 == len(pattern) or not (isinstance(component, str) or component.names_only)
    ]
