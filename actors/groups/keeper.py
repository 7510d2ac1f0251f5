"""The actor that keeps the groups of one node: the scope that those of other nodes speak with.

It finds them by name, watches their ends, and compares numbers with them at every beat. What is known, and what follows
from a message, is the business of `membership`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

from batonpass.actors.core.messages import Down
from batonpass.actors.core.process import logger
from batonpass.actors.core.server import Server
from batonpass.actors.core.timers import Tick
from batonpass.actors.groups.membership import is_group

if TYPE_CHECKING:
    from batonpass.actors.core.process import Process
    from batonpass.actors.core.ref import Ref
    from batonpass.actors.groups.membership import Membership

__all__ = ["GroupsKeeper", "KeeperSettings"]


class KeptGroups(Protocol):
    """What the keeper needs of the groups that it keeps."""

    def open(self, keeper: Process) -> Membership:
        """They are run by this from now on."""

    def flush(self) -> None:
        """Send what is to be sent, and tell those who monitor."""

    def local_broadcast(self, group: Hashable, message: Any) -> None:
        """Send to the members of this node."""


@final
@dataclass(frozen=True, slots=True)
class KeeperSettings:
    """What a keeper is started with; `GroupsSpec` says what it means."""

    groups: KeptGroups
    scope: str
    nodes: Sequence[str] | Callable[[], Iterable[str]]
    beat_s: float


@final
class GroupsKeeper(Server[None]):
    """One life of the scope of one node; see the head of the module."""

    def init(self, arg: KeeperSettings) -> None:
        """Open the groups, and look for the other scopes at once."""
        self._settings = arg
        self._published = False
        self._membership = arg.groups.open(self.ref.process)
        self.send_interval(arg.beat_s, start_s=None)
        self._look()

    def handle_cast(self, message: Any, state: None) -> None:
        """Another scope says something."""
        match message:
            case ("tell", _, group, said) if is_group(group):
                self._settings.groups.local_broadcast(group, said)
            case _:
                heard = self._membership.hear(message)
                if heard is not None:
                    self._watch(heard)
                self._settings.groups.flush()

    def handle_info(self, message: Any, state: None) -> None:
        """A beat, or the end of another scope."""
        match message:
            case Tick():
                self._membership.beat()
                self._look()
                self._settings.groups.flush()
            case Down(_, scope, _):
                found = scope.ref
                if found is not None:
                    self._membership.lost(found)
                self._settings.groups.flush()
            case _:
                logger.warning("%s got a message it does not understand: %r", self.ref, message)

    def _watch(self, scope: Ref) -> None:
        self.monitor(scope)

    def _look(self) -> None:
        """Be found, and call for those that may be there and are not heard."""
        distribution = self.system.distribution
        if distribution is None:
            return
        name = f"groups.{self._settings.scope}"
        if not self._published:
            distribution.show(name, self.ref)
            self._published = True
        nodes = self._settings.nodes
        heard = self._membership.scopes()
        for node in nodes() if callable(nodes) else nodes:
            if node != self.system.name and node not in heard:
                distribution.remote(node).named(name).cast(self._membership.greet())
