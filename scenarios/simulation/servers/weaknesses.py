"""Servers with one guard taken away each: runs that find nothing must show that they can find something.

The machines are those that `baton simulate transfers-search` finds out; here they fail in whole clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from batonpass.authority.machines.target import Incoming
from batonpass.scenarios.simulation import handover_weaknesses
from batonpass.scenarios.simulation.servers.birth_weaknesses import BIRTH_WEAKNESSES
from batonpass.scenarios.simulation.servers.death_weaknesses import DEATH_WEAKNESSES
from batonpass.scenarios.simulation.servers.group_weaknesses import GROUP_WEAKNESSES
from batonpass.scenarios.simulation.servers.leaving_weaknesses import LEAVING_WEAKNESSES
from batonpass.scenarios.simulation.servers.owner_weaknesses import OWNER_WEAKNESSES
from batonpass.scenarios.simulation.servers.parts import Parts
from batonpass.simserver.entity.inputs import Cursor
from batonpass.simserver.transfer.source.departure import Plan
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.target.arrivals import Arrivals

__all__ = ["WEAKNESSES", "Weakness"]


@dataclass(frozen=True)
class Weakness:
    """A guard that is missing."""

    name: str
    sentence: str
    parts: Parts


def _with_machines(weakness: handover_weaknesses.Weakness) -> Parts:
    """Servers whose machines are these."""
    weak = weakness.parts

    class WeakDepartures(Departures):
        def _depart(self, *args: Any) -> Any:
            departure = super()._depart(*args)
            departure.machine.__class__ = weak.outgoing
            return departure

    class WeakArrivals(Arrivals):
        def _machine(self, entity: str) -> Incoming:
            known = self._machines.get(entity)
            if known is None:
                known = self._machines[entity] = weak.incoming()
            return super()._machine(entity)

    return Parts(departures=WeakDepartures, arrivals=WeakArrivals)


class _ForgetsOnArrival(Arrivals):
    """Begins with what it was sent, but not with what its sources had come to."""

    def _begin(self, *args: Any) -> None:
        super()._begin(*args)
        holding = self._holdings.get(args[0])
        if holding is not None:
            cursors = holding.life.inbox.cursors
            cursors.update({source: Cursor() for source in cursors})


class _GoesOnAfterFreezing(Departures):
    """Lets the entity tick on while it is on its way."""

    def begin(self, plan: Plan, *, may_wait: bool = False) -> None:
        super().begin(plan, may_wait=may_wait)
        holding = self._holdings.get(plan.entity)
        if holding is not None:
            holding.life.frozen = False


_MACHINES: Final = (
    "activates-at-once",
    "answers-once",
    "any-certificate",
    "deletes-at-commit",
    "deletes-before-commit",
    "resumes-on-timeout",
    "stale-certificates",
)

_ALL: Final = (
    *(
        Weakness(
            name, handover_weaknesses.WEAKNESSES[name].sentence, _with_machines(handover_weaknesses.WEAKNESSES[name])
        )
        for name in _MACHINES
    ),
    Weakness(
        "forgets-on-arrival",
        "how far the sources of inputs had come stays behind",
        Parts(arrivals=_ForgetsOnArrival),
    ),
    Weakness(
        "goes-on-after-freezing", "an entity ticks on while it is on its way", Parts(departures=_GoesOnAfterFreezing)
    ),
    *(
        Weakness(*weakness)
        for weakness in (
            *DEATH_WEAKNESSES,
            *GROUP_WEAKNESSES,
            *BIRTH_WEAKNESSES,
            *LEAVING_WEAKNESSES,
            *OWNER_WEAKNESSES,
        )
    ),
)

WEAKNESSES: Final[Mapping[str, Weakness]] = MappingProxyType({weakness.name: weakness for weakness in _ALL})
