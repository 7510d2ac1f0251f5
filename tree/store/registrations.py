"""What is registered beside the tree: triggers and projections, and the commands about them.

These procedures are the machine's own, because they reach beyond the tree. Each checks everything before it changes
anything, so it needs no undo.
"""

from collections.abc import Mapping
from typing import Any, Final

from batonpass.tree.data.errors import Abort, BadData
from batonpass.tree.store.changes import Change, Commit
from batonpass.tree.store.matching import EventPattern
from batonpass.tree.store.pattern import Pattern, pattern_from_data_untrusted, pattern_to_data
from batonpass.tree.store.procedures import Procedure, ReadOnly
from batonpass.tree.store.projections import Projection, Projections, in_use_from_data_untrusted
from batonpass.tree.store.store import Store
from batonpass.tree.store.transaction import Transaction
from batonpass.tree.store.triggers import Trigger, Triggers

__all__ = ["Registrations", "stored_procedure_at"]

MAX_ACKNOWLEDGED: Final = 4096


class Registrations:
    """The triggers and projections of one store, fed by its commits while there are any."""

    def __init__(
        self, store: Store, projections: Mapping[str, Projection], max_pending_triggers: int | None = None
    ) -> None:
        self._store: Final = store
        self.triggers = Triggers(max_pending_triggers)
        self.projections: Final = Projections(projections)
        self.procedures: Final[Mapping[str, Procedure]] = {
            "tree.register_trigger": self._register_trigger,
            "tree.unregister_trigger": self._unregister_trigger,
            "tree.trigger_done": self._trigger_done,
            "tree.triggers": ReadOnly(self._list_triggers),
            "tree.register_projection": self._register_projection,
            "tree.unregister_projection": self._unregister_projection,
            "tree.projections": ReadOnly(self._list_projections),
        }

    def to_data(self) -> list[Any]:
        """As plain data, for a snapshot."""
        return [self.triggers.to_data(), self.projections.to_data()]

    @staticmethod
    def read_untrusted(data: Any, max_pending_triggers: int | None = None) -> tuple[Triggers, dict[str, Pattern]]:
        """What `to_data` described, for `become`; raises `BadData`."""
        match data:
            case [triggers, projections]:
                return Triggers.from_data_untrusted(triggers, max_pending_triggers), in_use_from_data_untrusted(
                    projections
                )
            case _:
                raise BadData("not the registrations of a tree")

    def become(self, registered: tuple[Triggers, dict[str, Pattern]]) -> None:
        """Take over what was read, with the store as it is now."""
        self.triggers, in_use = registered
        self.projections.become(in_use, self._store)
        self._observe()

    def adopt(self, registered: tuple[Triggers, dict[str, Pattern]]) -> None:
        """The same while the store stays: tables are made anew only if other projections are in use."""
        self.triggers, in_use = registered
        if self.projections.to_data() != [[name, pattern_to_data(in_use[name])] for name in sorted(in_use)]:
            self.projections.become(in_use, self._store)
        self._observe()

    def _observe(self) -> None:
        """Be told of commits if, and only if, a registration needs it: collecting changes costs every write."""
        wanted = bool(self.triggers) or bool(self.projections)
        self._store.steps_to_follow = self._steps_to_follow if wanted else None
        if wanted and self._follow not in self._store.observers:
            self._store.observers.append(self._follow)
        elif not wanted and self._follow in self._store.observers:
            self._store.observers.remove(self._follow)

    def _steps_to_follow(self, change: Change) -> int:
        return self.projections.steps_to_follow(change) + self.triggers.steps_to_follow(change)

    def _follow(self, commit: Commit) -> None:
        self.projections.follow(commit)
        self.triggers.fire(commit, self._store)

    # --- the procedures -------------------------------------------------------------------------------------------

    def _register_trigger(self, _transaction: Transaction, args: Any) -> None:
        """{id, pattern, procedure_path, kinds, priority}; replaces the trigger with this id."""
        trigger = Trigger.from_data_untrusted(args)
        EventPattern(trigger.pattern).check_parts()
        self.triggers.register(trigger)
        self._observe()

    def _unregister_trigger(self, _transaction: Transaction, args: Any) -> bool:
        """{id}; what it fired and was not acknowledged is dropped. Whether there was one."""
        known = self.triggers.unregister(_text(args, "id"))
        self._observe()
        return known

    def _trigger_done(self, _transaction: Transaction, args: Any) -> int:
        """{numbers}; how many of them were still pending."""
        numbers = args.get("numbers") if isinstance(args, Mapping) else None
        if not isinstance(numbers, list) or len(numbers) > MAX_ACKNOWLEDGED or any(type(n) is not int for n in numbers):
            raise Abort("bad_arguments", f"`numbers` is a list of at most {MAX_ACKNOWLEDGED} integers")
        return self.triggers.done(numbers)

    def _list_triggers(self, _transaction: Transaction, _args: Any) -> list[Any]:
        return [trigger.to_data() for trigger in self.triggers.all()]

    def _register_projection(self, _transaction: Transaction, args: Any) -> None:
        """{name, pattern}; the table is filled before this is answered."""
        name = _text(args, "name")
        pattern = pattern_from_data_untrusted(args.get("pattern"))
        EventPattern(pattern).check_parts()
        self.projections.register(name, pattern, self._store)
        self._observe()

    def _unregister_projection(self, _transaction: Transaction, args: Any) -> bool:
        """{name}; whether it was in use."""
        known = self.projections.unregister(_text(args, "name"))
        self._observe()
        return known

    def _list_projections(self, _transaction: Transaction, _args: Any) -> list[Any]:
        """Rows [name, pattern]. Tables are each member's own, so they are not told here."""
        return self.projections.to_data()


def _text(args: Any, name: str) -> str:
    value = args.get(name) if isinstance(args, Mapping) else None
    if not isinstance(value, str):
        raise Abort("bad_arguments", f"the argument {name!r} is missing or not text", {"argument": name})
    return value


def stored_procedure_at(transaction: Transaction, args: Any) -> str:
    """The name of the procedure stored at the path of `args`.

    Raises `Abort` (bad_arguments, no_stored_procedure), `NodeNotFound`, or what else `Store.get` raises.
    """
    if not isinstance(args, Mapping):
        raise Abort("bad_arguments", "the argument 'path' is missing", {"argument": "path"})
    path = pattern_from_data_untrusted(args.get("path"))
    transaction.get(path)  # raises when there is no such node
    view = transaction.view(path)
    name = None if view is None else view.procedure
    if name is None:
        raise Abort("no_stored_procedure", "the node stores no procedure", {"path": pattern_to_data(path)})
    return name
