"""Servers that lack one guard of what belongs together or travels in one batch, and of owners that go away."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from batonpass.authority.machines.precopy import CopyAhead
from batonpass.authority.model.leave_policy import LeavePolicy
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures import commit as transfer_procedures
from batonpass.authority.procedures import owner_absence as absence_procedures
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import OwnerRequest
from batonpass.homeserver.log.store import replicated_procedures
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.owners.inactivity import Inactivity
from batonpass.simserver.transfer.source.departure import Departure, DeparturePlan
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.source.precopy import PrecopySender
from batonpass.simserver.transfer.target.arrivals import Arrivals

__all__ = ["GROUP_MUTANTS", "changed"]

Procedure = Callable[[Any, Any], Any]

_ABSENCE: Final = ("entity.owner_silent", "entity.owner_left")


@contextmanager
def _instead(module: Any, name: str, other: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, other)
    try:
        yield
    finally:
        setattr(module, name, before)


def changed(module: Any, name: str, other: Any, *procedures: str) -> Mapping[str, Procedure]:
    """These procedures of the log, with another function under a name of their module."""

    def weak(procedure: Procedure) -> Procedure:
        def run(rows: Any, args: Any) -> Any:
            with _instead(module, name, other):
                return procedure(rows, args)

        return run

    real = replicated_procedures()
    return {one: weak(real[one]) for one in procedures}


def _nobody(_rows: Rows, *_: Any) -> str:
    return ""


class _StrandedConvoys(Departures):
    """Lets no entity follow when a place becomes free."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        batching: Any = self._preparation._batching
        batching.place_free = lambda _target: None


class _PatientDepartures(Departures):
    """Knows of no freeze budgets."""

    def _depart(self, plan: DeparturePlan, *args: Any) -> Departure:
        departure = super()._depart(replace(plan, freeze_budget_ms=0), *args)
        departure.plan = plan
        return departure


class _StaleRecipes(CopyAhead):
    """Sends what the state was when the last of it went ahead, not what it was when it was frozen."""

    stale = b""

    def next_round(self, state: bytes) -> list[bytes] | None:
        chunks = super().next_round(state)
        self.stale = self.stale if chunks is None else state
        return chunks

    def recipe(self, state: bytes) -> tuple[bytes, bytes]:
        return super().recipe(self.stale)


class _StaleAhead(PrecopySender):
    def begin(self, plan: DeparturePlan, holding: Any, over: Any) -> None:
        super().begin(plan, holding, over)
        if plan.entity in self._copying:
            ahead: Any = self._copying[plan.entity].ahead
            ahead.__class__, ahead.stale = _StaleRecipes, ahead._state


class _StaleDepartures(Departures):
    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._preparation._ahead.__class__ = _StaleAhead


class _CarelessArrivals(Arrivals):
    """Believes of what was put together from pieces that it is what it should be."""

    def _checked(self, message: Any, opened: OpenedMessage) -> EntitySnapshot:
        snapshot = EntitySnapshot.decode(message.state)
        self._states.keep(message.state_hash, snapshot, len(message.state))
        return snapshot


class _NeverSilent(Inactivity):
    """Notices no player's silence."""

    def sweep(self) -> list[OwnerRequest]:
        return []


class _DeafSilences(Inactivity):
    """Takes all players for silent since it began to simulate what they own."""

    def heard(self, player: str) -> None:
        return


class _Swapped:
    DESPAWN, ADOPT, KEEP = LeavePolicy.ADOPT, LeavePolicy.DESPAWN, LeavePolicy.KEEP
    DIVEST = LeavePolicy.DIVEST


GROUP_MUTANTS: Final[Sequence[tuple[str, str, ServersParts]]] = (
    (
        "parts-families",
        "a hand-over that was not proposed leaves parent and children behind",
        ServersParts(procedures=changed(transfer_procedures, "parts_from", _nobody, "transfer.commit")),
    ),
    (
        "strands-convoys",
        "an entity that waits for a place to leave is never told of one",
        ServersParts(departures=_StrandedConvoys),
    ),
    (
        "stale-pieces",
        "what went ahead is begun with, and not what has changed since",
        ServersParts(departures=_StaleDepartures, arrivals=_CarelessArrivals),
    ),
    ("endless-freezes", "freeze budgets are not kept", ServersParts(departures=_PatientDepartures)),
    ("never-silent", "no server notices that an owner is silent", ServersParts(inactivity=_NeverSilent)),
    ("deaf-to-owners", "a player who gives no inputs here counts as silent", ServersParts(inactivity=_DeafSilences)),
    (
        "swaps-policies",
        "what is to be adopted ends, and what is to end is adopted",
        ServersParts(procedures=changed(absence_procedures, "LeavePolicy", _Swapped, *_ABSENCE)),
    ),
)
"""Name, what is missing, and the servers that lack it."""
