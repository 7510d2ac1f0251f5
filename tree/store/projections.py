"""Projections: tables that every member keeps for itself, made from the tree and kept up while it changes.

A projection is a function declared in code under a name; which of them are in use, and for which pattern, is part of
the replicated state. It is called as `function(table, path, before, after)` for each node that matches, `before` being
None if the node did not exist or match before and `after` None if it does not any more, and changes the table at will.
A table is filled when its projection is registered and after a snapshot. It changes with every commit before a caller
learns that the command was applied, so a reader of the table is never behind a reader of the tree.

A projection that crashes does not stop the member: it is marked as broken with what it raised, its table stays as it
was, and it is called no more until it is registered again or the member restarts.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from batonpass.tree.data.errors import Abort, BadData, TooMuch, TreeError
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path
from batonpass.tree.data.work_budget import STEPS_PER_ROW
from batonpass.tree.store.changes import Change, Commit, Kind
from batonpass.tree.store.matching import ByPrefix, EventPattern
from batonpass.tree.store.pattern import Pattern, pattern_from_data_untrusted, pattern_to_data
from batonpass.tree.store.store import Store

__all__ = ["MAX_PROJECTIONS", "Projection", "ProjectionStatus", "Projections", "in_use_from_data_untrusted"]

log = logging.getLogger("batonpass.tree.store.projections")

MAX_PROJECTIONS: Final = 256

Projection = Callable[[dict[Any, Any], Path, NodeView | None, NodeView | None], None]


@dataclass(frozen=True)
class ProjectionStatus:
    """A projection in use on this member. `broken` is what it raised; empty if it works."""

    name: str
    pattern: Pattern
    rows: int
    broken: str


@dataclass
class _InUse:
    name: str
    pattern: Pattern
    watched: EventPattern
    function: Projection | None
    table: dict[Any, Any] = field(default_factory=dict)
    broken: str = ""


class Projections:
    """The projections in use, and their tables."""

    def __init__(self, declared: Mapping[str, Projection]) -> None:
        self._declared: Final = dict(declared)
        self._in_use: dict[str, _InUse] = {}
        self._index: ByPrefix[str] = ByPrefix()

    def __bool__(self) -> bool:
        return bool(self._in_use)

    def register(self, name: str, pattern: Pattern, store: Store) -> None:
        """Use a declared projection for this pattern, and fill its table; one in use is replaced.

        Raises `Abort` (unknown_projection), `BadPattern`, `TooMuch`.
        """
        if name not in self._declared:
            raise Abort("unknown_projection", f"the program declares no projection {name!r:.100}", {"name": name})
        if name not in self._in_use and len(self._in_use) >= MAX_PROJECTIONS:
            raise TooMuch(f"there are {MAX_PROJECTIONS} projections already; unregister one first")
        watched = EventPattern(pattern)
        self.unregister(name)
        in_use = self._in_use[name] = _InUse(name, pattern, watched, self._declared[name])
        self._index.add(watched.prefix, name)
        self._fill(in_use, store)

    def unregister(self, name: str) -> bool:
        """Use it no more, and drop its table; whether it was in use."""
        in_use = self._in_use.pop(name, None)
        if in_use is not None:
            self._index.discard(in_use.watched.prefix, name)
        return in_use is not None

    def table(self, name: str) -> Mapping[Any, Any]:
        """The table of a projection in use, as it is now and will be; raises `KeyError`. Do not write."""
        return MappingProxyType(self._in_use[name].table)

    def status(self) -> tuple[ProjectionStatus, ...]:
        """The projections in use, by name."""
        return tuple(
            ProjectionStatus(name, in_use.pattern, len(in_use.table), in_use.broken)
            for name, in_use in sorted(self._in_use.items())
        )

    def steps_to_follow(self, change: Change) -> int:
        """What `follow` takes for this change, beside what functions themselves do; see `tree.data.work_budget`."""
        path, _, before, after = change
        return sum(
            STEPS_PER_ROW
            + sum(self._in_use[name].watched.steps_on(path, view.encoded) for view in (before, after) if view)
            for name in self._index.about(path)
        )

    def follow(self, commit: Commit) -> None:
        """Take a commit into the tables."""
        for path, kind, before, after in commit.changes:
            if kind is not Kind.CHILDREN:
                for name in self._index.about(path):
                    in_use = self._in_use[name]
                    matched = before if before is not None and in_use.watched.matches(path, before) else None
                    matches = after if after is not None and in_use.watched.matches(path, after) else None
                    if matched is not None or matches is not None:
                        self._call(in_use, path, matched, matches)

    def _fill(self, in_use: _InUse, store: Store) -> None:
        for path, view in store.every_match(in_use.pattern):
            self._call(in_use, path, None, view)

    def _call(self, in_use: _InUse, path: Path, before: NodeView | None, after: NodeView | None) -> None:
        if in_use.broken or in_use.function is None:
            return
        try:
            in_use.function(in_use.table, path, before, after)
        except Exception as error:
            in_use.broken = f"{type(error).__name__} at {'/'.join(path)}: {error}"
            log.exception("the projection %s crashed at %s and is not called any more", in_use.name, "/".join(path))

    def to_data(self) -> list[Any]:
        """Which are in use, as plain data; the tables are made anew from the tree."""
        return [[name, pattern_to_data(in_use.pattern)] for name, in_use in sorted(self._in_use.items())]

    def become(self, in_use: Mapping[str, Pattern], store: Store) -> None:
        """Use these from now on, with tables made from this store.

        One that this program does not declare stays registered, and is reported as broken.
        """
        self._in_use, self._index = {}, ByPrefix()
        for name, pattern in in_use.items():
            watched = EventPattern(pattern)
            function = self._declared.get(name)
            used = self._in_use[name] = _InUse(name, pattern, watched, function)
            self._index.add(watched.prefix, name)
            if function is None:
                used.broken = "the program does not declare it"
                log.error("the tree uses the projection %s, which this program does not declare", name)
            self._fill(used, store)


def in_use_from_data_untrusted(data: Any) -> dict[str, Pattern]:
    """Read what `Projections.to_data` wrote; raises `BadData`."""
    if not isinstance(data, list) or len(data) > MAX_PROJECTIONS:
        raise BadData("not the projections of a tree")
    in_use: dict[str, Pattern] = {}
    for row in data:
        match row:
            case [str(name), pattern_data]:
                try:
                    in_use[name] = pattern_from_data_untrusted(pattern_data)
                    EventPattern(in_use[name])
                except TreeError as error:
                    raise BadData(error.message) from error
            case _:
                raise BadData("not the row of a projection")
    return in_use
