"""Servers that lack one guard of how entities leave: after a notice, or each by itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from batonpass.authority.errors import Reason
from batonpass.authority.machines import source as machine
from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures import group_request as group_requests
from batonpass.authority.wire.transfer import HandoffReply
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.transfer.source.departure import Departure, DeparturePlan
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.source.notice import NoticeTimer
from tests.mutants.servers.groups import changed

__all__ = ["LEAVING_MUTANTS"]


class _WithoutEnd(NoticeTimer):
    """Waits for those that were told, however long that takes."""

    async def _keep_time(self, entity: str) -> None:
        return


class _Hasty(NoticeTimer):
    """Lets the entity go as soon as all were told."""

    def begin(self, plan: DeparturePlan, leave: Callable[[], None]) -> None:
        super().begin(plan, leave)
        if (until_ns := self._notices.waiting().get(plan.entity)) is not None:
            self._notices.over(plan.entity, until_ns)


class _Patient(Departures):
    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._preparation._notice_timer.__class__ = _WithoutEnd


class _Hurried(Departures):
    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._preparation._notice_timer.__class__ = _Hasty


def _all_or_none(rows: Rows, args: Mapping[str, Any], number: int, entity: str) -> TransferRecord:
    """If one is not to be had, none is."""
    transfers = [_REAL(rows, args, number, one) for one in args["entities"]]
    refused = next((Reason(one.reason) for one in transfers if one.phase is Phase.REFUSED), None)
    own: TransferRecord = _REAL(rows, args, number, entity)
    return own if refused is None else own.changed(phase=Phase.REFUSED, reason=refused.value)


class _BlindToBlocks(Departures):
    """Takes what the log gave in a block of epochs of its own for what came of the entity after this hand-over."""

    def _reading(self, departure: Departure, reply: HandoffReply) -> machine.Event:
        if reply.outcome == "committed" and reply.fence > departure.machine.leads_to:
            return machine.PeerActive(reply.fence)
        return super()._reading(departure, reply)


_REAL: Final = group_requests._permitted_or_refused

LEAVING_MUTANTS: Final[Sequence[tuple[str, str, ServersParts]]] = (
    ("endless-notices", "a notice ends only when all that were told have finished", ServersParts(departures=_Patient)),
    ("hasty-notices", "an entity leaves at once when its notice was given", ServersParts(departures=_Hurried)),
    (
        "blind-to-blocks",
        "what the log gives in a new block was given on already",
        ServersParts(departures=_BlindToBlocks),
    ),
    (
        "refuses-all",
        "of those that are moved apart none is, if one is not to be had",
        ServersParts(procedures=changed(group_requests, "_permitted_or_refused", _all_or_none, "group.propose")),
    ),
)
"""Name, what is missing, and the servers that lack it."""
