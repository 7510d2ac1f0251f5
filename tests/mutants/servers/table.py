"""Servers with one guard taken away each: runs that find nothing must show that they can find something.

The machines are those that `baton simulate transfers-search` finds out; here they fail in whole clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from batonpass.authority.machines.target import Incoming
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.entity.inputs import Cursor
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.target.arrivals import Arrivals
from tests.mutants import search
from tests.mutants.servers.births import BIRTH_MUTANTS
from tests.mutants.servers.deaths import DEATH_MUTANTS
from tests.mutants.servers.groups import GROUP_MUTANTS
from tests.mutants.servers.leaving import LEAVING_MUTANTS
from tests.mutants.servers.owners import OWNER_MUTANTS
from tests.mutants.servers.scenes import SCENE_MUTANTS
from tests.mutants.servers.shows import SHOW_MUTANTS

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A guard that is missing."""

    name: str
    sentence: str
    parts: ServersParts


def _with_machines(mutant: search.Mutant) -> ServersParts:
    """Servers whose machines are these."""
    weak = mutant.parts

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

    return ServersParts(departures=WeakDepartures, arrivals=WeakArrivals)


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

    def _freeze(self, plan: DeparturePlan, holding: Holding) -> None:
        super()._freeze(plan, holding)
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
    *(Mutant(name, search.MUTANTS[name].sentence, _with_machines(search.MUTANTS[name])) for name in _MACHINES),
    Mutant(
        "forgets-on-arrival",
        "how far the sources of inputs had come stays behind",
        ServersParts(arrivals=_ForgetsOnArrival),
    ),
    Mutant(
        "goes-on-after-freezing",
        "an entity ticks on while it is on its way",
        ServersParts(departures=_GoesOnAfterFreezing),
    ),
    *(
        Mutant(*mutant)
        for mutant in (
            *DEATH_MUTANTS,
            *GROUP_MUTANTS,
            *BIRTH_MUTANTS,
            *LEAVING_MUTANTS,
            *OWNER_MUTANTS,
            *SHOW_MUTANTS,
            *SCENE_MUTANTS,
        )
    ),
)

MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType({mutant.name: mutant for mutant in _ALL})
