"""Hierarchies: an entity may have a parent, and a move of it moves what is below it too, in one step of the log.

Rules:

1. The links are in the log: a child names its parent under a revision, and a parent its children. Two are linked
   by the master of both alone; the master of either cuts the link.
2. No entity moves away from parent or children: a hand-over after which one of them is neither on the target nor comes
   along is refused (`attached`). So the only way to part them is to detach them first.
3. An entity that no server has, because its server died and it is being recovered, or lost, holds none back. That may
   last for ever, and it is not together with any. Resumed, it is where its copy was, until the next move of its parent.
4. A hierarchy has neither cycles nor more than `MAX_TREE` entities on `MAX_DEPTH` levels, so that one step moves it.

Attaching moves nothing: two that are on different servers stay there until one of them moves.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.rights import find_entity, save_entity

__all__ = [
    "HIERARCHY_PROCEDURES",
    "MAX_CHILDREN",
    "MAX_DEPTH",
    "MAX_TREE",
    "check_not_attached",
    "cut_out",
    "is_attached",
    "is_held_elsewhere",
    "level_of",
    "parts_from",
    "to_bring_along",
]

MAX_CHILDREN: Final = 64
MAX_DEPTH: Final = 8
MAX_TREE: Final = 256


# --- looking ----------------------------------------------------------------------------------------------------------


def is_attached(record: EntityRecord) -> bool:
    """Whether it has a parent or children."""
    return bool(record.parent or record.children)


def check_not_attached(record: EntityRecord) -> None:
    """Raise `Refused` (`attached`) if it has a parent or children."""
    if is_attached(record):
        raise Refused(Reason.ATTACHED, f"{record.id} belongs to a hierarchy: detach it first", entity=record.id)


def _below(rows: Rows, record: EntityRecord) -> list[EntityRecord]:
    """It and everything below it, parents before their children."""
    found = [record]
    for one in found:
        found += [find_entity(rows, child) for child in one.children]
    return found


def _above(rows: Rows, record: EntityRecord) -> Iterator[EntityRecord]:
    """Its parent, the parent of that, and on to the top."""
    while record.parent:
        record = find_entity(rows, record.parent)
        yield record


def _levels(rows: Rows, record: EntityRecord) -> int:
    """How many levels a hierarchy with this one at its top has."""
    return 1 + max((_levels(rows, find_entity(rows, child)) for child in record.children), default=0)


def level_of(rows: Rows, record: EntityRecord) -> int:
    """How many are above it, up to the top of its hierarchy."""
    return sum(1 for _ in _above(rows, record))


def is_held_elsewhere(record: EntityRecord, target: str) -> bool:
    """Whether another server than `target` has authority over it; not if none has, as none could hand it over."""
    return record.authority not in ("", target)


def to_bring_along(rows: Rows, record: EntityRecord, target: str) -> list[EntityRecord]:
    """What has to move to `target` with it: everything below it that is elsewhere."""
    return [one for one in _below(rows, record)[1:] if is_held_elsewhere(one, target)]


def parts_from(rows: Rows, record: EntityRecord, moving: Collection[str], target: str) -> str:
    """The entity that it would leave behind if it and `moving` went to `target`: a parent or child, or none (empty)."""
    for other in (record.parent, *record.children):
        if other and other not in moving and is_held_elsewhere(find_entity(rows, other), target):
            return other
    return ""


# --- changing ---------------------------------------------------------------------------------------------------------


def entity_attach(rows: Rows, args: Mapping[str, Any]) -> Any:
    """A master gives an entity a parent, another one, or none (empty), under the revision that it saw."""
    child, by = find_entity(rows, args["entity"]), args["by"]
    before = find_entity(rows, child.parent) if child.parent else None
    parent = find_entity(rows, args["parent"]) if args["parent"] else None
    may_part = by == child.master or (parent is None and before is not None and by == before.master)
    if not may_part or (parent is not None and by != parent.master):
        text = f"{by} is not master of {child.id} and of the parent"
        raise Refused(Reason.NOT_MASTER, text, by=by)
    if args["parent_rev"] != child.parent_rev:
        text = f"the parent of {child.id} has revision {child.parent_rev}, not {args['parent_rev']}"
        raise Refused(Reason.STALE_REVISION, text, revision=child.parent_rev)
    if args["parent"] == child.parent:
        return child.to_data()
    if parent is not None:
        _check_fits(rows, child, parent)
    if before is not None:
        save_entity(rows, _without(before, child.id))
    child = child.changed(parent=args["parent"], parent_rev=child.parent_rev + 1)
    save_entity(rows, child)
    if parent is not None:
        save_entity(rows, parent.changed(children=(*parent.children, child.id)))
    return child.to_data()


def _check_fits(rows: Rows, child: EntityRecord, parent: EntityRecord) -> None:
    if child.delegation or parent.delegation:
        text = f"{child.id} or {parent.id} is delegated; hand it over through its home first"
        raise Refused(Reason.NO_DELEGATION, text, entity=child.id)
    path = [parent, *_above(rows, parent)]
    if any(one.id == child.id for one in path):
        raise Refused(Reason.CYCLE, f"{parent.id} is below {child.id}", entity=child.id)
    is_elsewhere = all(one.id != path[-1].id for one in (child, *_above(rows, child)))
    size = len(_below(rows, path[-1])) + (len(_below(rows, child)) if is_elsewhere else 0)
    if len(parent.children) >= MAX_CHILDREN or size > MAX_TREE or len(path) + _levels(rows, child) > MAX_DEPTH:
        text = f"a hierarchy has {MAX_TREE} entities on {MAX_DEPTH} levels, and each {MAX_CHILDREN} children, at most"
        raise Refused(Reason.FULL, text, limit=MAX_TREE)


def _without(record: EntityRecord, child: str) -> EntityRecord:
    return record.changed(children=tuple(other for other in record.children if other != child))


def cut_out(rows: Rows, record: EntityRecord) -> None:
    """An entity ends: its children have no parent any more, and its parent one child less."""
    if record.parent:
        save_entity(rows, _without(find_entity(rows, record.parent), record.id))
    for name in record.children:
        child = find_entity(rows, name)
        save_entity(rows, child.changed(parent="", parent_rev=child.parent_rev + 1))


HIERARCHY_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {"entity.attach": entity_attach}
