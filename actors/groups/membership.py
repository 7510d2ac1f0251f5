"""Who is in which group: here, where it is known, and on other nodes, as their scopes tell it. Pure.

Every node has one *scope* of a name, which knows the members of its own node. It tells the scopes of the others each
change, with a number that counts its changes. Between two nodes everything keeps its order. So a scope that has heard
change 7 of another and now hears 8 knows all that the other knew at 8. Whatever can go wrong shows as a wrong number:

====================================  ==================================================================================
what happens                          what is done
====================================  ==================================================================================
a scope is heard for the first time   it is asked for a *snapshot*: all of its members, and the number they are of
a change has the wrong number         the same; until the snapshot comes, changes are passed over, and members stay
the last change was lost              the next *beat*, which says the number, has the wrong one
a scope ends, its node is lost        all of its members leave, at once
a scope begins a new life             the same, and it is heard for the first time
====================================  ==================================================================================

So no member outlives its node by more than the news of that, and two scopes that hear each other agree a beat later.
Source: `pg.erl` of OTP 25, which has no numbers, because between its nodes nothing is lost but the connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from batonpass.actors.base.exact_keys import exact, plain
from batonpass.actors.base.handles import Handle

if TYPE_CHECKING:
    from batonpass.actors.core.ref import Ref

__all__ = ["MAX_MEMBERS", "GroupMonitor", "JoinedGroup", "LeftGroup", "Membership", "ScopeMessage", "is_group"]

ScopeMessage: TypeAlias = tuple[Any, ...]

SNAPSHOT_MEMBERS: Final = 2_000
"""In one part of a snapshot: some 100 kB."""

MAX_MEMBERS: Final = 1_000_000
"""Of one node, counted once for each group: what is beyond is not believed."""


@final
class GroupMonitor(Handle):
    """One watch on one group, or with `group` None on all of a scope, from `Groups.monitor`."""

    __slots__ = ("_key", "group")

    def __init__(self, group: Hashable) -> None:
        self.group = group
        self._key = exact(group)

    def is_of(self, key: Hashable) -> bool:
        """Whether it watches the group that is kept under `key`."""
        return self.group is None or self._key == key

    def __repr__(self) -> str:
        return f"<monitor of {'all groups' if self.group is None else f'the group {self.group!r}'}>"


@final
@dataclass(frozen=True, slots=True)
class JoinedGroup:
    """To who monitors a group: `refs` have joined it, each as often as it stands here."""

    monitor: GroupMonitor
    group: Hashable
    refs: tuple[Ref, ...]


@final
@dataclass(frozen=True, slots=True)
class LeftGroup:
    """To who monitors a group: `refs` have left it, or have ended, or their node is lost."""

    monitor: GroupMonitor
    group: Hashable
    refs: tuple[Ref, ...]


Change: TypeAlias = tuple[bool, Hashable, tuple["Ref", ...]]
"""Whether these joined (or left), which group."""


@final
class _OtherScope:
    """What is known of the scope of one other node."""

    __slots__ = ("count", "groups", "number", "parts", "parts_number", "scope")

    def __init__(self, scope: Ref) -> None:
        self.scope = scope
        self.number: int | None = None
        """The number of the last change that is known with all before it; None: it is out of step."""
        self.groups: dict[Hashable, Counter[Ref]] = {}
        self.count = 0
        self.parts: list[tuple[Hashable, tuple[Ref, ...]]] = []
        self.parts_number = 0


@final
class Membership:
    """See the head of the module. `changes` collects what those who monitor are to be told, `outbox` what to send."""

    __slots__ = ("_all", "_local", "_of", "_others", "changes", "me", "number", "outbox", "refused")

    def __init__(self, me: Ref) -> None:
        self.me = me
        """The scope of this node."""
        self.number = 0
        self.changes: list[Change] = []
        self.outbox: list[tuple[Ref, ScopeMessage]] = []
        self.refused = 0
        """Messages that no scope would send."""
        self._all: dict[Hashable, Counter[Ref]] = {}
        self._local: dict[Hashable, Counter[Ref]] = {}
        self._of: dict[Ref, Counter[Hashable]] = {}
        self._others: dict[str, _OtherScope] = {}

    # Looking

    def members(self, group: Hashable) -> list[Ref]:
        """All members, each as often as it has joined."""
        return list(self._all.get(exact(group), Counter()).elements())

    def local_members(self, group: Hashable) -> list[Ref]:
        """Those of this node."""
        return list(self._local.get(exact(group), Counter()).elements())

    def groups(self) -> list[Hashable]:
        """The groups that have members."""
        return list(map(plain, self._all))

    def local_groups(self) -> list[Hashable]:
        """Those that have members of this node."""
        return list(map(plain, self._local))

    def scopes(self) -> dict[str, Ref]:
        """The scopes of the other nodes that are heard, by node."""
        return {node: other.scope for node, other in self._others.items()}

    def scopes_of(self, group: Hashable) -> list[Ref]:
        """The scopes of those other nodes that have members in it."""
        key = exact(group)
        return [other.scope for other in self._others.values() if key in other.groups]

    @property
    def is_in_step(self) -> bool:
        """Whether of every scope that is heard all is known."""
        return all(other.number is not None for other in self._others.values())

    # This node

    def join(self, group: Hashable, refs: Iterable[Ref]) -> None:
        """Actors of this node join."""
        joining = tuple(refs)
        key = exact(group)
        if not joining:
            return
        for ref in joining:
            self._of.setdefault(ref, Counter())[key] += 1
        _add(self._local, key, joining)
        self._changed(True, key, joining)
        self._tell(("join", self.me, self._next(), group, joining))

    def leave(self, group: Hashable, refs: Iterable[Ref]) -> bool:
        """They leave, each once; False if none was in it."""
        key = exact(group)
        leaving = _present(self._local.get(key, Counter()), refs)
        if leaving:
            for ref in leaving:
                self._forget(ref, key)
            self._leave(key, leaving)
            self._tell(("leave", self.me, self._next(), [(group, leaving)]))
        return bool(leaving)

    def ended(self, ref: Ref) -> None:
        """An actor of this node has ended, and with that left all groups."""
        joined = self._of.pop(ref, None)
        if not joined:
            return
        left = [(key, (ref,) * count) for key, count in joined.items()]
        for key, leaving in left:
            self._leave(key, leaving)
        self._tell(("leave", self.me, self._next(), [(plain(key), leaving) for key, leaving in left]))

    def _forget(self, ref: Ref, key: Hashable) -> None:
        joined = self._of[ref]
        joined[key] -= 1
        if not joined[key]:
            del joined[key]
            if not joined:
                del self._of[ref]

    def _leave(self, key: Hashable, leaving: tuple[Ref, ...]) -> None:
        _remove(self._local, key, leaving)
        self._changed(False, key, leaving)

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _tell(self, message: ScopeMessage) -> None:
        self.outbox += [(other.scope, message) for other in self._others.values()]

    # Other nodes

    def greet(self) -> ScopeMessage:
        """What to send to a scope that may be there and has not been heard."""
        return ("discover", self.me)

    def beat(self) -> None:
        """Say the number to all that are heard, and ask those again that are out of step."""
        self._tell(("beat", self.me, self.number))
        for other in self._others.values():
            if other.number is None:
                self._ask(other)

    def lost(self, scope: Ref) -> None:
        """A scope has ended, or its node is lost."""
        other = self._others.get(scope.node)
        if other is not None and other.scope is scope:
            del self._others[scope.node]
            self._replace(other, {})

    def hear(self, message: Any) -> Ref | None:
        """Take in what a scope says; the scope, if it is heard for the first time, so that its end can be watched."""
        match message:
            case ("discover", scope) if self._is_scope(scope):
                new = self._know(scope)
                self._send_snapshot(scope)
                return new
            case ("snapshot", scope, int(number), bool(first), bool(last), groups) if self._is_scope(scope):
                new = self._know(scope)
                self._on_part(self._others[scope.node], number, first, last, groups)
                return new
            case ("join", scope, int(number), group, refs) if self._is_scope(scope):
                return self._on_change(scope, number, [(group, refs)], joined=True)
            case ("leave", scope, int(number), groups) if self._is_scope(scope):
                return self._on_change(scope, number, groups, joined=False)
            case ("beat", scope, int(number)) if self._is_scope(scope):
                new = self._know(scope)
                other = self._others[scope.node]
                if other.number is not None and other.number != number:
                    self._lose_step(other)
                return new
            case _:
                self.refused += 1
                return None

    def _is_scope(self, scope: Any) -> bool:
        return type(scope) is type(self.me) and scope.node != self.me.node

    def _know(self, scope: Ref) -> Ref | None:
        other = self._others.get(scope.node)
        if other is not None and other.scope is scope:
            return None
        if other is not None:
            self.lost(other.scope)
        self._others[scope.node] = _OtherScope(scope)
        self._ask(self._others[scope.node])
        return scope

    def _ask(self, other: _OtherScope) -> None:
        self.outbox.append((other.scope, ("discover", self.me)))

    def _lose_step(self, other: _OtherScope) -> None:
        other.number = None
        self._ask(other)

    def _send_snapshot(self, scope: Ref) -> None:
        part: list[tuple[Hashable, tuple[Ref, ...]]] = []
        size, first = 0, True
        for key, members in self._local.items():
            for some in _cut(tuple(members.elements())):
                if size + len(some) > SNAPSHOT_MEMBERS:
                    self.outbox.append((scope, ("snapshot", self.me, self.number, first, False, part)))
                    part, size, first = [], 0, False
                part.append((plain(key), some))
                size += len(some)
        self.outbox.append((scope, ("snapshot", self.me, self.number, first, True, part)))

    def _on_part(self, other: _OtherScope, number: int, first: bool, last: bool, groups: Any) -> None:
        if first:
            other.parts, other.parts_number = [], number
        elif other.parts_number != number or not other.parts:
            return
        told = self._understood(other, groups)
        if told is None:
            return
        other.parts += told
        if sum(len(refs) for _, refs in other.parts) > MAX_MEMBERS:
            self.refused += 1
            other.parts = []
            return
        if not last:
            return
        groups_now: dict[Hashable, Counter[Ref]] = {}
        for key, refs in other.parts:
            _add(groups_now, key, refs)
        other.count = sum(len(refs) for _, refs in other.parts)
        other.parts = []
        other.number = number
        self._replace(other, groups_now)

    def _on_change(self, scope: Ref, number: int, groups: Any, *, joined: bool) -> Ref | None:
        new = self._know(scope)
        other = self._others[scope.node]
        if other.number is None:
            return new
        told = self._understood(other, groups) if number == other.number + 1 else None
        if told is not None and joined and other.count + sum(len(refs) for _, refs in told) > MAX_MEMBERS:
            self.refused += 1
            told = None
        if told is None:
            self._lose_step(other)
            return new
        other.number = number
        for key, refs in told:
            if joined:
                other.count += len(refs)
                _add(other.groups, key, refs)
                self._changed(True, key, refs)
            else:
                leaving = _present(other.groups.get(key, Counter()), refs)
                other.count -= len(leaving)
                _remove(other.groups, key, leaving)
                self._changed(False, key, leaving)
        return new

    def _understood(self, other: _OtherScope, groups: Any) -> list[tuple[Hashable, tuple[Ref, ...]]] | None:
        """Groups with their members, of which each has to be of the node that says so; None for anything else."""
        understood: list[tuple[Hashable, tuple[Ref, ...]]] = []
        node = other.scope.node
        try:
            for group, refs in groups:
                members = tuple(refs)
                if not all(type(ref) is type(self.me) and ref.node == node for ref in members):
                    raise TypeError
                understood.append((exact(group), members))
        except (TypeError, ValueError):
            self.refused += 1
            return None
        return understood

    def _replace(self, other: _OtherScope, groups: dict[Hashable, Counter[Ref]]) -> None:
        """Who was a member and is not any more leaves, who is and was not joins; nothing happens to the others."""
        before, other.groups = other.groups, groups
        for key in [*before, *(key for key in groups if key not in before)]:
            was, now = before.get(key, Counter()), groups.get(key, Counter())
            self._changed(False, key, tuple((was - now).elements()))
            self._changed(True, key, tuple((now - was).elements()))

    def _changed(self, joined: bool, key: Hashable, refs: tuple[Ref, ...]) -> None:
        if refs:
            (_add if joined else _remove)(self._all, key, refs)
            self.changes.append((joined, plain(key), refs))


def is_group(value: object) -> bool:
    """Whether this can be a group: it has to be hashable."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _add(groups: dict[Hashable, Counter[Ref]], key: Hashable, refs: Iterable[Ref]) -> None:
    groups.setdefault(key, Counter()).update(refs)


def _remove(groups: dict[Hashable, Counter[Ref]], key: Hashable, refs: Iterable[Ref]) -> None:
    members = groups.get(key)
    if members is None:
        return
    for ref in refs:
        members[ref] -= 1
        if members[ref] <= 0:
            del members[ref]
    if not members:
        del groups[key]


def _present(members: Counter[Ref], refs: Iterable[Ref]) -> tuple[Ref, ...]:
    """Those of `refs` that are members, each at most as often as it is one."""
    wanted = Counter(refs)
    return tuple((wanted & members).elements())


def _cut(refs: tuple[Ref, ...]) -> Iterator[tuple[Ref, ...]]:
    for start in range(0, len(refs), SNAPSHOT_MEMBERS):
        yield refs[start : start + SNAPSHOT_MEMBERS]
