"""Triggers: procedures to run, outside the log, when something happened in the tree. The replicated half.

A trigger names a pattern, the kinds of events it is about, and a priority. It also names the path of a node that stores
the name of the procedure (`StoredProcedure`). When a commit fires it, what fired is queued in the replicated state
until it is acknowledged through the log. So it survives every crash and is run at least once, by whichever member
leads. Procedures must therefore be able to run twice. A trigger whose node stores no procedure at that moment is not
fired (as in Khepri).

Of one commit, triggers of a higher priority come first, then those with the lower id, then by path. The queue holds at
most `MAX_PENDING`. What fires while it is full is not queued but counted, on every member alike. The count reaches the
procedure with the next thing that fires, which then must look at the tree for itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from batonpass.tree.data.errors import BadData, BadPath, TooMuch, TreeError
from batonpass.tree.data.path import Path, check_path
from batonpass.tree.data.payload import procedure_name
from batonpass.tree.data.work_budget import STEPS_PER_ROW
from batonpass.tree.store.changes import Change, Commit, Kind
from batonpass.tree.store.matching import ByPrefix, EventPattern
from batonpass.tree.store.pattern import Pattern, pattern_from_data_untrusted, pattern_to_data
from batonpass.tree.store.store import Store

__all__ = ["MAX_PENDING", "MAX_TRIGGERS", "Fired", "Trigger", "Triggers"]

MAX_TRIGGERS: Final = 1024
MAX_PENDING: Final = 65_536
MAX_ID_CHARACTERS: Final = 255
_KINDS: Final = (Kind.CREATED, Kind.UPDATED, Kind.DELETED)


@dataclass(frozen=True)
class Trigger:
    """Run the procedure stored at `procedure_path` when a node that matches is created, updated or deleted."""

    id: str
    pattern: Pattern
    procedure_path: Path
    kinds: frozenset[Kind] = frozenset(_KINDS)
    priority: int = 0

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "id": self.id,
            "pattern": pattern_to_data(self.pattern),
            "procedure_path": list(self.procedure_path),
            "kinds": sorted(self.kinds),
            "priority": self.priority,
        }

    @staticmethod
    def from_data_untrusted(data: Any) -> "Trigger":
        """Read what `to_data` wrote; `kinds` and `priority` may be missing. Raises `BadData`."""
        try:
            match data:
                case {"id": str(trigger_id), "pattern": pattern, "procedure_path": path} if (
                    0 < len(trigger_id) <= MAX_ID_CHARACTERS
                ):
                    trigger = Trigger(
                        trigger_id,
                        pattern_from_data_untrusted(pattern),
                        check_path(path),
                        _kinds_untrusted(data.get("kinds", list(_KINDS))),
                        _priority_untrusted(data.get("priority", 0)),
                    )
                    EventPattern(trigger.pattern)
                    return trigger
                case _:
                    raise BadData("a trigger is {id, pattern, procedure_path, kinds, priority}")
        except BadData:
            raise
        except TreeError as error:
            raise BadData(error.message) from error


def _kinds_untrusted(data: Any) -> frozenset[Kind]:
    if not isinstance(data, list) or not data or any(kind not in _KINDS for kind in data):
        raise BadData(f"kinds are a list of some of {', '.join(_KINDS)}")
    return frozenset(map(Kind, data))


def _priority_untrusted(data: Any) -> int:
    if type(data) is not int or abs(data) >= 2**31:
        raise BadData("a priority is an integer of 32 bits")
    return data


@dataclass(frozen=True)
class Fired:
    """A trigger that fired and was not acknowledged yet. `missed`: how often it fired before without being queued."""

    number: int
    trigger: str
    procedure: str
    revision: int
    kind: Kind
    path: Path
    payload_version: int
    missed: int = 0

    def to_data(self) -> list[Any]:
        """As plain data."""
        return [
            self.number,
            self.trigger,
            self.procedure,
            self.revision,
            str(self.kind),
            list(self.path),
            self.payload_version,
            self.missed,
        ]

    @staticmethod
    def from_data_untrusted(data: Any) -> "Fired":
        """Read what `to_data` wrote; raises `BadData`."""
        match data:
            case [int(number), str(trigger), str(procedure), int(revision), str(kind), path, int(version), int(missed)]:
                if kind in _KINDS:
                    return Fired(
                        number, trigger, procedure, revision, Kind(kind), _path_untrusted(path), version, missed
                    )
            case _:
                pass
        raise BadData("not a fired trigger")


def _path_untrusted(data: Any) -> Path:
    """A path; raises `BadData`."""
    try:
        return check_path(data)
    except BadPath as error:
        raise BadData(error.message) from error


class Triggers:
    """The triggers that are registered, and what fired and was not acknowledged."""

    def __init__(self, max_pending: int | None = None) -> None:
        """`max_pending`, by default `MAX_PENDING`, must be the same on all members."""
        self._max_pending: Final = max_pending
        self._triggers: dict[str, Trigger] = {}
        self._index: ByPrefix[str] = ByPrefix()
        self._patterns: dict[str, EventPattern] = {}
        self._pending: dict[int, Fired] = {}
        self._missed: dict[str, int] = {}
        self._next_number = 1

    def __bool__(self) -> bool:
        return bool(self._triggers)

    def register(self, trigger: Trigger) -> None:
        """Add a trigger, or replace the one with its id; raises `TooMuch`."""
        if trigger.id not in self._triggers and len(self._triggers) >= MAX_TRIGGERS:
            raise TooMuch(f"there are {MAX_TRIGGERS} triggers already; unregister one first")
        self._forget(trigger.id)
        pattern = EventPattern(trigger.pattern)
        self._triggers[trigger.id] = trigger
        self._patterns[trigger.id] = pattern
        self._index.add(pattern.prefix, trigger.id)

    def unregister(self, trigger_id: str) -> bool:
        """Remove a trigger and what it fired; whether there was one."""
        known = trigger_id in self._triggers
        self._forget(trigger_id)
        self._missed.pop(trigger_id, None)
        self._pending = {number: fired for number, fired in self._pending.items() if fired.trigger != trigger_id}
        return known

    def all(self) -> tuple[Trigger, ...]:
        """The registered triggers, by id."""
        return tuple(self._triggers[trigger_id] for trigger_id in sorted(self._triggers))

    def pending(self) -> tuple[Fired, ...]:
        """What fired and was not acknowledged, in the order in which it is to be run."""
        return tuple(self._pending.values())

    def done(self, numbers: Iterable[int]) -> int:
        """These were run; how many of them were still pending."""
        return sum(1 for number in numbers if self._pending.pop(number, None) is not None)

    def steps_to_follow(self, change: Change) -> int:
        """What `fire` takes for this change, at most; see `tree.data.work_budget`."""
        path, _, before, after = change
        encoded = before.encoded if after is None and before is not None else after.encoded if after else None
        return sum(
            STEPS_PER_ROW + self._patterns[trigger_id].steps_on(path, encoded) for trigger_id in self._index.about(path)
        )

    def fire(self, commit: Commit, store: Store) -> None:
        """Queue what this commit, just made in this store, fires."""
        fired: list[tuple[int, str, Path, Kind, int]] = []
        for path, kind, before, after in commit.changes:
            node = before if after is None else after
            if kind is Kind.CHILDREN or node is None:
                continue
            for trigger_id in self._index.about(path):
                trigger = self._triggers[trigger_id]
                if kind in trigger.kinds and self._patterns[trigger_id].matches(path, node):
                    fired.append((-trigger.priority, trigger_id, path, kind, node.payload_version))
        for _, trigger_id, path, kind, version in sorted(fired):
            view = store.view(self._triggers[trigger_id].procedure_path)
            procedure = None if view is None else procedure_name(view.encoded)
            if procedure is not None:
                self._enqueue(trigger_id, procedure, commit.revision, kind, path, version)

    def _enqueue(self, trigger_id: str, procedure: str, revision: int, kind: Kind, path: Path, version: int) -> None:
        if len(self._pending) >= (MAX_PENDING if self._max_pending is None else self._max_pending):
            self._missed[trigger_id] = self._missed.get(trigger_id, 0) + 1
            return
        number = self._next_number
        self._next_number += 1
        missed = self._missed.pop(trigger_id, 0)
        self._pending[number] = Fired(number, trigger_id, procedure, revision, kind, path, version, missed)

    def _forget(self, trigger_id: str) -> None:
        pattern = self._patterns.pop(trigger_id, None)
        if pattern is not None:
            self._index.discard(pattern.prefix, trigger_id)
            del self._triggers[trigger_id]

    def to_data(self) -> dict[str, Any]:
        """As plain data, for a snapshot."""
        return {
            "triggers": [trigger.to_data() for trigger in self.all()],
            "pending": [fired.to_data() for fired in self._pending.values()],
            "missed": dict(sorted(self._missed.items())),
            "next_number": self._next_number,
        }

    @staticmethod
    def from_data_untrusted(data: Any, max_pending: int | None = None) -> "Triggers":
        """Read what `to_data` wrote; raises `BadData`."""
        triggers = Triggers(max_pending)
        match data:
            case {"triggers": list(rows), "pending": list(pending), "missed": dict(missed), "next_number": int(number)}:
                for row in rows:
                    triggers.register(Trigger.from_data_untrusted(row))
                for row in pending:
                    fired = Fired.from_data_untrusted(row)
                    triggers._pending[fired.number] = fired
                triggers._missed = dict(missed)
                triggers._next_number = number
            case _:
                raise BadData("not the triggers of a tree")
        return triggers
