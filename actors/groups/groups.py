"""Groups of actors that may be on any node, any number of them (OTP's `pg`).

Make a `Groups`, run it on every node under a supervisor, before those who use it, and hand the object to them:

    rooms = Groups("rooms")
    System.open("alpha.s1", [GroupsSpec("rooms", rooms, nodes=("alpha.s2", "alpha.s3")), ...])
    ...
    rooms.join("lobby", self.ref)                       # in any callback
    rooms.broadcast("lobby", ("said", "anna", "hello"))  # to `handle_info` of every member, here and there

A member joins as often as it likes, and leaves as often, or when it ends. All functions are plain, take effect here
before they return, and never wait. On other nodes they take effect a message later.

**What is guaranteed** is what `pg` does. Every node knows its own members at once, and those of another in the order of
their joining and leaving there. Nodes that hear each other agree before long, and no total order is kept between three.
When a node is lost its members leave, when it is heard again they are there again. A broadcast goes to the members that
this node knows now: in one message to each node, which gives it to those that it has then. It arrives in the order in
which one actor says several, or not at all, as a cast does.

Needs a `Distribution` on each node, if there are others; the scope of a name is published as `groups.NAME`. A peer
that may connect to a node can join actors of its own and broadcast: a group is no permission. What a group is called is
data (a text, a number, a tuple), because it travels.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from batonpass.actors.base.exact_keys import exact
from batonpass.actors.base.handles import Handle
from batonpass.actors.core.checks import need_seconds
from batonpass.actors.core.children import ChildSpec
from batonpass.actors.core.exits import NoProc
from batonpass.actors.core.ref import Ref
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.groups.keeper import GroupsKeeper, KeeperSettings
from batonpass.actors.groups.membership import GroupMonitor, JoinedGroup, LeftGroup, Membership

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.process import Process
    from batonpass.actors.core.system import System

__all__ = ["BEAT_S", "Groups", "GroupsSpec", "Nodes"]

BEAT_S: Final = 5.0
"""So often scopes compare numbers, and ask for those that are not heard."""

Nodes: TypeAlias = Sequence[str] | Callable[[], Iterable[str]]
"""The nodes where a scope of the same name may run, now; this one may be among them."""


@final
class Groups(Handle):
    """The groups of one scope, seen from one node; see the head of the module. It works while a `GroupsSpec` runs it.

    What has joined here stays joined when its supervisor restarts it.
    """

    __slots__ = ("_keeper", "_membership", "_monitors", "_slot", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._keeper: Process | None = None
        self._membership: Membership | None = None
        self._monitors: dict[GroupMonitor, tuple[Ref, int]] = {}
        # Stands for this scope in the table of names that each process has for its end.
        self._slot = object()

    def __repr__(self) -> str:
        return f"<groups {self.name}>"

    # Joining and leaving

    def join(self, group: Hashable, members: Ref | Iterable[Ref]) -> None:
        """Have living actors of this node join; one call for many is one message to each other node.

        Raises `NoProc` if one has ended or the scope does not run, `ValueError` for an actor of another node,
        `TypeError` for what is no ref; none has joined then.
        """
        membership, joining = self._open(), _several(members)
        for ref in joining:
            if ref.process.system is not membership.me.process.system or ref.node != membership.me.node:
                raise ValueError(f"{ref} runs on {ref.node!r}: only a node itself says who of it is in {self}")
            if not ref.alive:
                raise NoProc(str(ref))
        for ref in joining:
            if ref.process.names is None:
                ref.process.names = {}
            ref.process.names[self._slot] = self
        membership.join(group, joining)
        self.flush()

    def leave(self, group: Hashable, members: Ref | Iterable[Ref]) -> bool:
        """Have actors leave, each once; False if none of them was in it. Raises `NoProc` if the scope does not run."""
        left = self._open().leave(group, _several(members))
        self.flush()
        return left

    # Looking

    def members(self, group: Hashable) -> list[Ref]:
        """All members that are known now, on all nodes; none if the scope does not run."""
        return [] if self._known is None else self._known.members(group)

    def local_members(self, group: Hashable) -> list[Ref]:
        """Those of this node."""
        return [] if self._known is None else self._known.local_members(group)

    def groups(self) -> list[Hashable]:
        """The groups that have members."""
        return [] if self._known is None else self._known.groups()

    def local_groups(self) -> list[Hashable]:
        """The groups that have members of this node."""
        return [] if self._known is None else self._known.local_groups()

    @property
    def nodes(self) -> list[str]:
        """The other nodes whose scope is heard."""
        return [] if self._known is None else list(self._known.scopes())

    # Telling

    def broadcast(self, group: Hashable, message: Any) -> None:
        """Send `message` to every member, once for each time that it has joined. Raises `NoProc`: it does not run."""
        membership = self._open()
        self.local_broadcast(group, message)
        for scope in membership.scopes_of(group):
            scope.cast(("tell", membership.me, group, message))

    def local_broadcast(self, group: Hashable, message: Any) -> None:
        """Send `message` to the members of this node. Raises `NoProc`: it does not run."""
        for ref in self._open().local_members(group):
            ref.send(message)

    def monitor(self, watcher: Ref, group: Hashable = None) -> tuple[GroupMonitor, dict[Hashable, list[Ref]]]:
        """Tell `watcher`, an actor of this node, who joins and leaves; and who is there now.

        By `JoinedGroup` and `LeftGroup`, of one group, or with None of all. It ends with `demonitor`, and with the
        watcher. Groups that a dict takes for one, 1 and True, are one in the answer. Raises `NoProc`.
        """
        membership = self._open()
        if not watcher.alive:
            raise NoProc(str(watcher))
        watch = GroupMonitor(group)
        token = watcher.process.watch(lambda reason: self._monitors.pop(watch, None))
        self._monitors[watch] = (watcher, token)
        groups = membership.groups() if group is None else [group]
        there: dict[Hashable, list[Ref]] = {}
        for one in groups:
            there.setdefault(one, []).extend(membership.members(one))
        return watch, there

    def demonitor(self, watch: GroupMonitor) -> bool:
        """Tell no more, and take out of the mailbox what was told and not handled; False if that was so already."""
        held = self._monitors.pop(watch, None)
        if held is None:
            return False
        watcher, token = held
        watcher.process.unwatch(token)
        watcher.process.take_out_all(
            lambda message: isinstance(message, JoinedGroup | LeftGroup) and message.monitor is watch
        )
        return True

    # For the runtime

    def vacate(self, _slot: object, ref: Ref) -> None:
        """`ref` has ended: it is in no group any more."""
        if self._membership is not None:
            self._membership.ended(ref)
            self.flush()

    def open(self, keeper: Process) -> Membership:
        """`keeper` runs this scope from now until it ends. Raises `RuntimeError` if another does."""
        if self._keeper is not None:
            raise RuntimeError(f"{self} is run by {self._keeper.ref} already; make one Groups for each GroupsSpec")
        before, self._membership = self._membership, Membership(keeper.ref)
        if before is not None and before.me.process.system is keeper.system:
            for group in before.local_groups():
                self._membership.join(group, before.local_members(group))
            self._membership.changes.clear()
        self._keeper = keeper
        keeper.watch(self._close)
        return self._membership

    def _close(self, _reason: Reason) -> None:
        self._keeper = None
        if self._membership is not None:
            for scope in self._membership.scopes().values():
                self._membership.lost(scope)
            self.flush()

    def flush(self) -> None:
        """Send what is to be sent, and tell those who monitor."""
        membership = self._membership
        if membership is None:
            return
        outbox, membership.outbox = membership.outbox, []
        changes, membership.changes = membership.changes, []
        if self._keeper is not None:
            for scope, message in outbox:
                scope.cast(message)
        for joined, group, refs in changes if self._monitors else ():
            key = exact(group)
            for watch, (watcher, _) in list(self._monitors.items()):
                if watch.is_of(key):
                    watcher.send((JoinedGroup if joined else LeftGroup)(watch, group, refs))

    @property
    def _known(self) -> Membership | None:
        """What there is to be looked at: None while the scope does not run."""
        return None if self._keeper is None else self._membership

    def _open(self) -> Membership:
        if self._keeper is None or self._membership is None:
            raise NoProc(repr(self))
        self._keeper.require_loop()
        return self._membership


def _several(members: Ref | Iterable[Ref]) -> tuple[Ref, ...]:
    several = (members,) if isinstance(members, Ref) else tuple(members)
    for ref in several:
        if not isinstance(ref, Ref):
            raise TypeError(f"a member of a group is given by its ref, not as {ref!r}")
    return several


@dataclass(frozen=True)
class GroupsSpec(ChildSpec):
    """The scope of a `Groups` on this node, as a child. `nodes` are the others that may have one, or say which.

    Raises `TypeError`, `ValueError` for what no child can have.
    """

    groups: Groups = field(kw_only=False)
    nodes: Nodes = field(default=(), kw_only=True)
    beat_s: float = field(default=BEAT_S, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.groups, Groups):
            raise TypeError(f"groups of the child {self.id!r} must be a Groups, not {self.groups!r}")
        if not callable(self.nodes) and (isinstance(self.nodes, str) or not isinstance(self.nodes, Iterable)):
            raise TypeError(f"nodes of the child {self.id!r} must be names, or a function, not {self.nodes!r}")
        need_seconds(f"beat_s of the child {self.id!r}", self.beat_s, positive=True)

    def start_nowait(self, system: System, parent: Process) -> Process:
        """Open the scope, and look for the others."""
        settings = KeeperSettings(self.groups, self.groups.name, self.nodes, self.beat_s)
        name = self.name if self.name is not None else f"groups.{self.groups.name}"
        return ServerProcess.start_nowait(system, GroupsKeeper, settings, name, parent)
