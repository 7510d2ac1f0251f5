"""Who is where, on all nodes: what Phoenix's `Presence` is, on top of `Groups`.

    here = Presence("rooms")
    System.open("alpha.s1", [here.spec("presence", nodes=("alpha.s2",)), ...])
    ...
    tracked = here.track(self.ref, "lobby", "anna", device="phone")  # until it is untracked, or the actor ends
    here.at("lobby")                                                 # {"anna": [{"device": "phone"}]}
    here.subscribe(self.ref, "lobby")                                # `PresenceDiff` messages from now on
    tracked.update(device="laptop")

One key may be there several times, from several actors and nodes. Nothing is merged, so nothing conflicts: each node
says of its own actors where they are, and its word is that of a `Groups`, with the same guarantees. What is tracked is
a group of its own, whose name has topic, key and metadata in it. So metadata must travel, and be hashable. `at` looks
at all that is present in the scope: give topics of different kinds a `Presence` each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from batonpass.actors.base.exact_keys import exact
from batonpass.actors.core.children import ActorSpec
from batonpass.actors.core.restart import Strategy
from batonpass.actors.core.server import Server
from batonpass.actors.core.supervisor import SupervisorSpec
from batonpass.actors.groups.groups import BEAT_S, Groups, GroupsSpec, Nodes
from batonpass.actors.groups.membership import JoinedGroup, LeftGroup

if TYPE_CHECKING:
    from batonpass.actors.core.ref import Ref

__all__ = ["Presence", "PresenceDiff", "Tracked"]


@final
@dataclass(frozen=True, slots=True)
class PresenceDiff:
    """To those that have subscribed to `topic`: the metadata of who has come, and of who has gone, by key."""

    topic: Hashable
    joins: Mapping[Hashable, list[dict[str, Any]]]
    leaves: Mapping[Hashable, list[dict[str, Any]]]


@final
class Presence:
    """Who is where in one scope, seen from one node; see the head of the module."""

    def __init__(self, name: str) -> None:
        self.groups = Groups(f"presence.{name}")

    def __repr__(self) -> str:
        return f"<presence {self.groups.name}>"

    def spec(self, child_id: Hashable, *, nodes: Nodes = (), beat_s: float = BEAT_S) -> SupervisorSpec:
        """What runs it on this node, as a child; see `GroupsSpec`."""
        scope = GroupsSpec("scope", self.groups, nodes=nodes, beat_s=beat_s)
        return SupervisorSpec(
            child_id, [scope, ActorSpec("teller", _Teller, self.groups)], strategy=Strategy.REST_FOR_ONE
        )

    def track(self, ref: Ref, topic: Hashable, key: Hashable, /, **meta: Hashable) -> Tracked:
        """Have it known on all nodes that `key` is at `topic`, until `untrack` or the end of `ref`, an actor of here.

        Raises what `Groups.join` does, and `TypeError` for metadata that are not hashable.
        """
        return Tracked(self.groups, ref, topic, key, meta)

    def at(self, topic: Hashable) -> dict[Hashable, list[dict[str, Any]]]:
        """Who is at `topic`, as far as this node knows now: the metadata of each time, by key."""
        found: dict[Hashable, list[dict[str, Any]]] = {}
        wanted = exact(topic)
        for group in self.groups.groups():
            for at, key, meta in _read(group):
                if exact(at) == wanted:
                    found.setdefault(key, []).extend(dict(meta) for _ in self.groups.members(group))
        return found

    def subscribe(self, watcher: Ref, topic: Hashable) -> None:
        """Tell `watcher`, an actor of this node, who comes and goes, until `unsubscribe` or its end. See `join`."""
        self.groups.join(("watch", topic), watcher)

    def unsubscribe(self, watcher: Ref, topic: Hashable) -> bool:
        """Tell it no more; False if that was so already."""
        return self.groups.leave(("watch", topic), watcher)


@final
class Tracked:
    """One actor at one topic, under one key; made by `Presence.track`."""

    __slots__ = ("_group", "_groups", "_ref")

    def __init__(self, groups: Groups, ref: Ref, topic: Hashable, key: Hashable, meta: Mapping[str, Hashable]) -> None:
        self._groups = groups
        self._ref = ref
        self._group = _group_of(topic, key, meta)
        groups.join(self._group, ref)

    def update(self, **meta: Hashable) -> None:
        """Have other metadata. At no time is it away: it comes with the new ones, and then goes with the old."""
        _, topic, key, _ = before = self._group
        after = _group_of(topic, key, meta)
        if after != before:
            self._groups.join(after, self._ref)
            self._group = after
            self._groups.leave(before, self._ref)

    def untrack(self) -> bool:
        """It is there no more; False if that was so already."""
        return self._groups.leave(self._group, self._ref)


_Group = tuple[str, Hashable, Hashable, tuple[tuple[str, Hashable], ...]]


def _group_of(topic: Hashable, key: Hashable, meta: Mapping[str, Hashable]) -> _Group:
    group = ("here", topic, key, tuple(sorted(meta.items(), key=_name_of)))
    hash(group)
    return group


def _name_of(item: tuple[str, Hashable]) -> str:
    return item[0]


def _read(group: Hashable) -> Iterator[tuple[Hashable, Hashable, tuple[tuple[str, Any], ...]]]:
    """Topic, key and metadata, if this is a group of ours: what a peer calls its groups is its own business."""
    match group:
        case ("here", topic, key, tuple(meta)) if all(
            isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in meta
        ):
            yield topic, key, meta
        case _:
            pass


@final
class _Teller(Server[None]):
    """Tells those of this node that have subscribed who comes and goes."""

    def init(self, arg: Groups) -> None:
        self._groups = arg
        arg.monitor(self.ref)

    def handle_info(self, message: JoinedGroup | LeftGroup, state: None) -> None:
        for topic, key, meta in _read(message.group):
            told = {key: [dict(meta) for _ in message.refs]}
            joined = isinstance(message, JoinedGroup)
            diff = PresenceDiff(topic, told if joined else {}, {} if joined else told)
            self._groups.local_broadcast(("watch", topic), diff)
