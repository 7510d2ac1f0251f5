"""The operator of a simulated cluster: adds, removes and replaces members while everything else goes wrong.

It does what docs/guides/cluster.md tells an operator to do, and no more. A newcomer begins with an empty disk, and a
change is asked for again until it has happened. A member that was removed is stopped for good, and only then its disk
is erased, so that its name may be used again.
"""

from collections.abc import Callable
from typing import Final

from batonpass.scenarios.simulation.tree.cluster import TreeCluster, WantedChange

__all__ = ["Operator"]

_LOOK_AGAIN_S: Final = (0.05, 0.2)
_PATIENCE_S: Final = 3.0
_LARGEST: Final = 7


class Operator:
    """Makes one change after the other; what does not happen in time is left as it is."""

    def __init__(self, cluster: TreeCluster, hands_on: set[str]) -> None:
        """`hands_on` are the members that operators add or remove now: two of these never ask for opposite things."""
        self._cluster: Final = cluster
        self._hands_on: Final = hands_on
        self._dice: Final = cluster.dice
        self._busy = False
        self._stopped = False

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stopped = True

    def change(self) -> None:
        """Add, remove or replace a member, unless another change is under way."""
        configuration = self._cluster.configuration()
        if self._busy or configuration is None:
            return
        members = sorted(configuration.members - self._hands_on)
        kinds = ["replace"]
        if not members:
            return
        if len(configuration.members) < _LARGEST:
            kinds.append("add")
        if len(configuration.members) > 3:
            kinds.append("remove")
        kind = self._dice.choice(kinds)
        newcomer = self._newcomer() if kind != "remove" else None
        if kind != "remove" and newcomer is None:
            return
        leaver = self._dice.choice(members) if kind != "add" else None
        self._busy = True
        wanted = WantedChange(newcomer, leaver)
        self._hands_on.update(wanted.names())
        self._cluster.schedule.note(f"change {wanted}")
        if newcomer is not None:
            self._cluster.join(newcomer)
        self._pursue(wanted, self._cluster.schedule.now_s + _PATIENCE_S)

    def _newcomer(self) -> str | None:
        """A name that is no member's now: a fresh one, or that of a member that is gone."""
        cluster = self._cluster
        taken = {*cluster.present(), *self._hands_on}
        free = [name for name in cluster.names if name not in taken]
        return self._dice.choice(free) if free else None

    def _pursue(self, wanted: WantedChange, until_s: float) -> None:
        """Ask the leader, until the members are as wanted or the time is over."""
        cluster = self._cluster
        configuration = cluster.configuration()
        is_done = configuration is not None and wanted.is_met_by(configuration)
        if is_done or self._stopped or cluster.schedule.now_s > until_s:
            self._busy = False
            self._hands_on.difference_update(wanted.names())
            return
        for leader in cluster.leaders():
            cluster.in_process(leader, self._asking(leader, wanted), 0.0)
        cluster.schedule.after(self._dice.uniform(*_LOOK_AGAIN_S), lambda: self._pursue(wanted, until_s))

    def _asking(self, leader: str, wanted: WantedChange) -> Callable[[], None]:
        return lambda: self._cluster.member(leader).change(wanted)
