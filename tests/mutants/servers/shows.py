"""Servers that lack one guard of shows: what may be sent, and which number follows."""

from collections.abc import Sequence
from typing import Final

from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.ports import EngineAct, SubmitState
from batonpass.simserver.sync.shows.host import HostedShows
from batonpass.simserver.sync.shows.show_part import Reign, ShowPart

__all__ = ["SHOW_MUTANTS", "AskedCounts", "ForgetsToSend", "PassesOverNothing", "SendsWithoutLease"]


class AskedCounts(HostedShows):
    """A limit counts as soon as it is asked for, whatever its copies have."""

    def _ask_for_limit(self, part: ShowPart, reign: Reign) -> None:
        super()._ask_for_limit(part, reign)
        reign.limit.kept(2**62)
        if part.traffic.machine is not None:
            part.traffic.machine.may_send_below(reign.limit.allowed)


class SendsWithoutLease(HostedShows):
    """A controller sends as long as it has the entity."""

    def _may_send(self, entity: str) -> bool:
        return True


class PassesOverNothing(HostedShows):
    """A hand-over continues with the first number that was not sent, though the own engine may have shown it."""

    def _pause(self, entity: str) -> int | None:
        following, part = super()._pause(entity), self._shows.get(entity)
        return following if part is None or part.reign is None else part.reign.next


class ForgetsToSend(HostedShows):
    """What the engine of a controller computes is sent to nobody."""

    def _acted(self, part: ShowPart, machine: NodeMachine, act: EngineAct) -> None:
        if not isinstance(act, SubmitState):
            super()._acted(part, machine, act)


class HoldsItsPredecessor(HostedShows):
    """A node that takes over ignores the former controller until that says that it takes part."""

    def _reigns(self, part: ShowPart, holding: Holding) -> None:
        before = part.controller
        super()._reigns(part, holding)
        if part.traffic.machine is not None and before in part.traffic.peers and before != self._links.server:
            part.traffic.machine.hold(before)


SHOW_MUTANTS: Final[Sequence[tuple[str, str, ServersParts]]] = (
    ("asked-counts", "a limit counts before a copy of it is kept", ServersParts(shows=AskedCounts)),
    ("sends-without-lease", "a controller sends though its lease is over", ServersParts(shows=SendsWithoutLease)),
    (
        "passes-over-nothing",
        "the number of a frame that had begun is used again after a hand-over",
        ServersParts(shows=PassesOverNothing),
    ),
    ("forgets-to-send", "a controller sends none of its frames", ServersParts(shows=ForgetsToSend)),
    ("holds-predecessor", "a former controller is ignored for good", ServersParts(shows=HoldsItsPredecessor)),
)
"""Name, what is missing, and the servers that lack it."""
